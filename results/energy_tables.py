"""The energy account as rows: what each GPU's sensors are worth, and joules by class, phase and fate of the work."""

from typing import Any

import pyarrow as pa

from results.class_energy import Attributed, ClassEnergy
from results.energy import Energy
from results.schema import TABLES

CLASS, PHASE, ATTRIBUTED = "class", "phase", "attributed"


def energy_tables(found: Energy | None) -> dict[str, pa.Table]:
    """Tables `gpu_energy` and `class_energy`; without rows where nothing is known of any GPU."""
    gpus: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    if found is not None:
        gpus = [
            {
                "gpu": each.gpu,
                "pool": each.pool,
                "energy_joules": each.joules,
                "uncertainty_joules": each.uncertainty_joules,
                "limit_joules": each.limit_joules,
                "source": each.source,
                "k_ratio": each.k,
                "verdict": each.verdict,
                "reasons": list(each.reasons),
            }
            for each in found.gpus
        ]
        parts += [_class(CLASS, each) for each in found.classes]
        parts += [_class(PHASE, each) for each in found.phases]
        parts += [_attributed(each) for each in found.attributed]
    return {
        name: pa.Table.from_pylist(rows, schema=TABLES[name])
        for name, rows in (("gpu_energy", gpus), ("class_energy", parts))
    }


def _class(kind: str, each: ClassEnergy) -> dict[str, Any]:
    return {
        "pool": each.pool,
        "kind": kind,
        "name": each.name,
        "energy_joules": each.joules,
        "uncertainty_joules": each.uncertainty_joules,
        "limit_joules": each.limit_joules,
        "power_utilisation_ratio": each.power_utilisation,
        "note": each.note,
    }


def _attributed(each: Attributed) -> dict[str, Any]:
    return {
        "pool": each.pool,
        "kind": ATTRIBUTED,
        "name": each.name,
        "energy_joules": each.joules,
        "note": each.note,
    }
