"""Runs whose GPUs draw a power that is known, and what the account says of them."""

from collections.abc import Callable

import numpy as np
from recorded_histories import History, ns

from results.account import make_account
from results.energy import ClassEnergy, Energy, GpuEnergy, energy
from results.tracks import tracks
from results.window import Window

LOW, HIGH = 20.0, 120.0
LIMIT = 400.0
Power = Callable[[float], float]


def whole_window() -> Window:
    edges = (ns(LOW), ns(HIGH))
    return Window(start_ns=edges[0], end_ns=edges[1], after_step=1, last_step=2, boundaries_ns=edges)


def gpu_history(gpus: int = 2, pool: str = "both") -> History:
    history = History("colocated", {"device": "cuda"})
    history.meta = {"gpus": [{"uuid": f"GPU-{i}", "name": "NVIDIA L40S", "index": i} for i in range(gpus)]}
    history.process("controller", 12, gpu_uuids=[f"GPU-{i}" for i in range(gpus)], pool=pool)
    return history


def sample(
    history: History,
    gpu: str,
    power: Power,
    *,
    sensors: tuple[str, ...] = ("energy_joules", "power_instant_watts"),
    scale: float = 1.0,
    times: np.ndarray | None = None,
) -> None:
    """Readings every 100 ms; the counter is the exact integral x `scale`, and began at 5000 J."""
    joules = 5000.0
    for at in np.arange(0.03, 140, 0.1) if times is None else times:
        joules += power(at) * 0.1 * scale
        known = {"energy_joules": joules, "power_instant_watts": power(at), "power_limit_watts": LIMIT}
        if "power_average_watts" in sensors:
            past = np.linspace(at - 1, at, 50)
            known["power_average_watts"] = float(np.mean([power(t) for t in past]))
        row = {name: known[name] for name in (*sensors, "power_limit_watts")}
        history.add("samples", gpu=gpu, mono_ns=ns(at), **row)


def energy_of(history: History, trained: int = 10) -> Energy:
    run, window = history.run(), whole_window()
    account = make_account(run, tracks(run), window)
    return energy(run, window, {unit.pool: unit.timeline for unit in account.units}, trained)


def flat(watts: float) -> Power:
    return lambda at: watts


def one_gpu(history: History, **sampled: object) -> GpuEnergy:
    sample(history, "GPU-0", flat(200))
    sample(history, "GPU-1", flat(200), **sampled)  # type: ignore[arg-type]
    return energy_of(history).gpus[1]


def classes_of(found: Energy) -> dict[str, ClassEnergy]:
    return {each.name: each for each in found.classes}
