"""Run inside an environment, by path and with `-P`: says what is there. Standard library only.

Arguments: a JSON request {"names": [...], "modules": [...], "imports": [...]} and the file to write the answer to.
The answer is a file because imports print; it is written before each import, so that one that kills the process is
named.
"""

import contextlib
import importlib
import importlib.metadata
import importlib.util
import json
import platform
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any


def main(arguments: list[str]) -> None:
    """Writes the answer."""
    request: dict[str, list[str]] = json.loads(arguments[0])
    out = Path(arguments[1])
    owners = importlib.metadata.packages_distributions()
    packages: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]
        if name:  # a half-removed distribution has none
            packages.setdefault(name, distribution.version)
    answer: dict[str, Any] = {
        "python": platform.python_version(),
        "site_packages": sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}),
        "owners": {name: sorted(set(owners.get(name, []))) for name in request["names"]},
        "places": {name: _place(name) for name in request["names"]},
        "absent": [name for name in request["modules"] if _place(name) is None],
        "packages": packages,
        "imports": [],
        "importing": None,
        "protocol": None,
    }
    _write(out, answer)
    for name in request["imports"]:
        answer["importing"] = name
        _write(out, answer)
        begun = time.monotonic()
        error = None
        try:
            importlib.import_module(name)
        except BaseException as reason:  # SystemExit too: it is this module's fault, not the probe's end
            error = f"{type(reason).__name__}: {reason}"
        answer["imports"].append({"module": name, "error": error, "seconds": time.monotonic() - begun})
        answer["importing"] = None
        answer["protocol"] = getattr(sys.modules.get("harness.protocol"), "PROTOCOL_VERSION", None)
        _write(out, answer)


def _place(name: str) -> str | None:
    with contextlib.suppress(ImportError, ValueError):
        spec = importlib.util.find_spec(name)
        if spec is None:
            return None
        if spec.origin is not None:
            return spec.origin
        return next(iter(spec.submodule_search_locations or ()), None)
    return None


def _write(out: Path, answer: dict[str, Any]) -> None:
    temporary = out.with_name(out.name + ".part")
    temporary.write_text(json.dumps(answer), encoding="utf-8")
    temporary.replace(out)


if __name__ == "__main__":
    main(sys.argv[1:])
