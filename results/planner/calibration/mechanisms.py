"""How a framework moves weights and takes batches in each placement: what its adapter says of the same run placed so.

A run shows its own placement's mechanism only. The adapter knows the others': it configures them, and says in its rows
of the fairness table what they are (`adapters.base.FAIRNESS`). The seconds there are read from its words, so that they
are written down once; a test holds the words of every adapter against this reading.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from adapters.base import load_adapter
from harness.protocol.errors import SpecError
from harness.protocol.spec import Placement, RunSpec
from results.planner.calibration.constants import Mechanism

_POLLED = re.compile(r"disk sync ([\d.]+) s")
_HELD = re.compile(r"(?:held by a sync looks every|is asked again) ([\d.]+) s")
_WHOLE = "(wait)"


def mechanisms_of(spec: RunSpec) -> dict[str, Mechanism]:
    """By placement, of those that the framework can do; empty where no adapter of that name is installed."""
    try:
        adapter = load_adapter(spec.framework)
    except SpecError:
        return {}
    found = {}
    for placement in Placement:
        placed = _placed(spec, placement)
        try:
            if adapter.supports(placed) is None:
                found[placement.value] = mechanism_in(adapter.launch(placed, Path("run")).fairness)
        except SpecError:  # its overrides are for its own placement
            continue
    return found


def mechanism_in(fairness: Mapping[str, str]) -> Mechanism:
    """What an adapter's rows say."""
    polled, held = _POLLED.search(fairness.get("polls", "")), None
    for row in ("polls", "kv_at_sync"):
        held = held or _HELD.search(fairness.get(row, ""))
    return Mechanism(
        transport=fairness.get("sync", ""),
        polled_s=float(polled[1]) if polled else 0.0,
        held_s=float(held[1]) if held else 0.0,
        whole_batches=_WHOLE in fairness.get("staleness", ""),
    )


def _placed(spec: RunSpec, placement: Placement) -> RunSpec:
    """The same run placed otherwise: as many GPUs a side."""
    if placement is spec.placement:
        return spec
    bound = max(1, spec.max_staleness) if placement is Placement.ASYNC else 0
    gpus = spec.gpus
    if placement is Placement.COLOCATED and gpus.train != gpus.rollout:
        gpus = replace(gpus, rollout=gpus.train)
    return replace(spec, placement=placement, max_staleness=bound, gpus=gpus)
