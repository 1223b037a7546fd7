"""Calibrated systems made by hand, and the step that is foretold of one."""

from results.planner.calibration.constants import Calibration, Constant, Fit
from results.planner.candidates import Candidate, centre, predict

SPLIT = Candidate(placement="async", train_gpus=4, rollout_gpus=4, max_staleness=1)
COLOCATED = Candidate(placement="colocated", train_gpus=8, rollout_gpus=8)


PUBLISHED = ["calibrate", "--phases", "generate=385,train=33", "--batch", "24", "--gpus", "8"]


def constant(value, spread=0.0, unit="s"):
    return Constant(value=value, low=value * (1 - spread), high=value * (1 + spread), unit=unit, source="measured", n=9)


def calibrated(**other):
    """A colocated system of 8 GPUs, made by hand."""
    steps = {"train_s": 30.0, "logprob_s": 10.0, "host_s": 1.0, "offload_s": 2.0}
    sync = {"sync_pause_s": 0.5, "sync_transfer_s": 3.0, "sync_resume_s": 0.5}
    turn = {"token_s": 0.02, "token_s_per_sequence": 0.002, "agent_s": 0.1}
    about = {
        "source": "measured",
        "name": "run",
        "device": "cuda",
        "placement": "colocated",
        "framework": "skyrl",
        "model": "m",
        "batch_size": 8,
        "group_size": 3,
        "train_gpus": 8,
        "rollout_gpus": 8,
        "gpus_per_engine": 1,
        "turns": tuple(range(2, 10)),
        "turn_tokens": (300.0, 600.0, 900.0),
        "tool_s": (5.0, 10.0, 20.0, 40.0),
        "constants": {name: constant(value, 0.05) for name, value in {**steps, **sync, **turn}.items()},
        "fit": Fit(turns=500, least=1.0, most=3.0, r2=0.9, residual_p50=0.1, residual_p95=0.3),
    }
    return Calibration(**about | other)


def step(calibration, candidate, seed=1, **places):
    found = predict(calibration, candidate, {**centre(calibration), **places}, updates=80, seed=seed)
    return found.window_s / found.updates
