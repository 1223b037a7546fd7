"""Distributions with adapters, written as pip would leave them."""

import itertools
import textwrap
from pathlib import Path

_NUMBERS = itertools.count()

WHOLE = """
from adapters.base import FAIRNESS, Environment, Launch
from harness.protocol.phases import Phase
from harness.protocol.spec import Device, Placement


class Own:
    name = "{name}"
    framework_version = "7"
    phases = {{"train": Phase.TRAIN, "logprob": Phase.LOGPROB, "sync": Phase.WEIGHT_SYNC}}
    verified_on = {{}}

    def environment(self, device, engine):
        return None

    def supports(self, spec):
        return None

    def launch(self, spec, run_dir):
        return Launch(arguments=("-m", "nowhere", str(run_dir / "spec.json")), fairness=dict.fromkeys(FAIRNESS, "own"))

{more}

ADAPTER = Own()
"""


def install(site: Path, *, name: str = "own", more: str = "", text: str | None = None, entry: str | None = None) -> str:
    """Installs `bench-<name> 1.2` with one adapter into a folder that is on the path.

    Args:
        site: the folder.
        name: the framework.
        more: what is added to the adapter's class, or stands in place of its members.
        text: the whole module, in place of an adapter that works.
        entry: the file of entry points, in place of one that names the module.

    Returns:
        The entry point's value.
    """
    module = f"outside_adapter_{next(_NUMBERS)}"  # each its own: modules stay imported
    info = site / f"bench_{name}-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: bench-{name}\nVersion: 1.2\n")
    value = f"{module}:ADAPTER"
    (info / "entry_points.txt").write_text(f"[bench.adapters]\n{name} = {value}\n" if entry is None else entry)
    whole = WHOLE.format(name=name, more=textwrap.indent(textwrap.dedent(more), "    "))
    (site / f"{module}.py").write_text(whole if text is None else text)
    return value
