"""Asks an environment's interpreter what is in it, and judges who owns the project's names there."""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.protocol.errors import EnvError

NAMES = ("harness", "adapters", "workloads", "results", "reports")  # the project's top-level packages
DISTRIBUTION = "agentic-rl-bench"
_CHILD = Path(__file__).with_name("probe_child.py")
_LIMIT_S = 900  # imports of torch and vLLM take a minute each on a busy machine


@dataclass(frozen=True, slots=True)
class Import:
    """One module imported inside the environment; `error` None when it worked."""

    module: str
    error: str | None
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What an interpreter answered. `owners`: distributions that install something under each of `NAMES`."""

    python: str
    site_packages: tuple[str, ...]
    owners: Mapping[str, tuple[str, ...]]
    places: Mapping[str, str | None]
    absent: tuple[str, ...]  # asked-for modules whose top-level package is not there
    packages: Mapping[str, str]
    imports: tuple[Import, ...]
    protocol: int | None  # of the project there; None when harness.protocol was not imported

    @property
    def foreign(self) -> dict[str, tuple[str, ...]]:
        """Names of the project that other distributions own too, and those distributions."""
        found = {}
        for name, owners in self.owners.items():
            others = tuple(owner for owner in owners if owner.lower().replace("_", "-") != DISTRIBUTION)
            if others:
                found[name] = others
        return found


def probe(python: Path, *, modules: Sequence[str] = (), imports: Sequence[str] = (), isolated: bool = True) -> Probe:
    """Starts `python` and asks. `modules` are looked for, `imports` are really imported, in that order.

    Args:
        python: the interpreter (3.11 or newer).
        modules: modules whose top-level package should be there.
        imports: modules to import; a failing one is an answer, not an error.
        isolated: ignore PYTHONPATH and the user's site-packages. False for an interpreter that the user chose, which
            may need them.

    Raises:
        EnvError: it does not start, or dies while it answers (names the module that it was importing).
    """
    request = {
        "names": list(NAMES),
        "modules": sorted({module.partition(".")[0] for module in modules}),
        "imports": list(imports),
    }
    with tempfile.TemporaryDirectory(prefix="bench-probe-") as folder:
        out = Path(folder) / "answer.json"
        command = [str(python), "-I" if isolated else "-P", str(_CHILD), json.dumps(request), str(out)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=_LIMIT_S, check=False, cwd=folder
            )
        except subprocess.TimeoutExpired:
            raise EnvError(f"{python}: no answer in {_LIMIT_S} s{_while_importing(out)}") from None
        except OSError as error:
            raise EnvError(f"{python}: does not start: {error}") from None
        if done.returncode != 0 or not out.exists():
            lines = done.stderr.strip().splitlines()[-5:]
            said = "".join(f"\n  {line}" for line in lines)
            raise EnvError(f"{python}: exit {done.returncode} when asked what it has{_while_importing(out)}{said}")
        answer = json.loads(out.read_text(encoding="utf-8"))
    return Probe(
        python=answer["python"],
        site_packages=tuple(answer["site_packages"]),
        owners={name: tuple(owners) for name, owners in answer["owners"].items()},
        places=answer["places"],
        absent=tuple(answer["absent"]),
        packages=answer["packages"],
        imports=tuple(Import(**row) for row in answer["imports"]),
        protocol=answer["protocol"],
    )


def refuse_foreign(found: Probe, where: str) -> None:
    """Refuses an environment in which another distribution owns one of the project's names.

    Raises:
        EnvError: names the distribution and the package.
    """
    if not found.foreign:
        return
    owned = "; ".join(f"`{name}` also belongs to {', '.join(owners)}" for name, owners in sorted(found.foreign.items()))
    others = sorted({owner for owners in found.foreign.values() for owner in owners})
    raise EnvError(
        f"{where}: another distribution owns a top-level package of bench, so that imports could find the wrong one: "
        f"{owned}. Take {', '.join(others)} out of the environment (out of its requirements, or pip uninstall)"
    )


def installer_environment() -> dict[str, str]:
    """This process's environment for `venv` and pip: the machine's own pip configuration, but nothing that would make
    them look at, or install to, another place than the one asked for."""
    dropped = {"PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_DRY_RUN"}
    kept = {key: value for key, value in os.environ.items() if key not in dropped}
    return {**kept, "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_PROGRESS_BAR": "off"}


def _while_importing(out: Path) -> str:
    try:
        module = json.loads(out.read_text(encoding="utf-8"))["importing"]
    except (OSError, ValueError, KeyError):
        return ""
    return f", while it imported {module}" if module else ""
