"""Which candidates of a plan can't hold the model's training, by arithmetic alone."""

from collections.abc import Sequence

from harness.protocol.models import SHAPES
from harness.protocol.spec import Offload
from harness.specs.defaults import ENGINE_BYTES_PER_PARAMETER, TRAIN_BYTES_PER_PARAMETER
from results.planner.calibration.constants import Calibration
from results.planner.candidates import Candidate

GIB = 2**30


def fitting(calibration: Calibration, asked: Sequence[Candidate]) -> tuple[list[Candidate], list[str]]:
    """The candidates that may fit, and words on those that can't, or on why nothing was checked.

    A lower bound: fp32 weights, gradients and two moments, spread over the training GPUs, and an engine's bf16
    weights; activations and caches come on top, and colocated GPUs hold one of the two at a time at best.
    """
    shape, memory = SHAPES.get(calibration.model), calibration.gpu_bytes
    if shape is None or memory is None:
        why = f"the sizes of {calibration.model or 'the model'} are not known" if shape is None else "GPU memory is not"
        why += "" if shape is None else " known"
        return list(asked), [f"whether a split's GPUs can hold the training was not checked: {why}"]
    billions = f"{shape.parameters / 1e9:.1f} billion parameters"
    engine = ENGINE_BYTES_PER_PARAMETER * shape.parameters / calibration.gpus_per_engine
    if engine > memory:
        per = calibration.gpus_per_engine
        return [], [
            f"no engine fits: {billions} x {ENGINE_BYTES_PER_PARAMETER} bytes on {per} GPU{'s' * (per > 1)} are "
            f"{engine / GIB:.0f} GiB each, of {memory / GIB:.0f} GiB"
        ]
    if calibration.offload not in ("", Offload.NONE.value):
        return list(asked), ["whether a split's GPUs can hold the training was not checked: states are offloaded"]
    kept, words, told = [], [], set()
    for one in asked:
        train = TRAIN_BYTES_PER_PARAMETER * shape.parameters / one.train_gpus
        if train <= memory:
            kept.append(one)
        elif one.train_gpus not in told:
            told.add(one.train_gpus)
            words.append(
                f"left out with {one.train_gpus} training GPU{'s' * (one.train_gpus > 1)}, which can't hold it: "
                f"{billions} x {TRAIN_BYTES_PER_PARAMETER} bytes (fp32 weights, gradients, two moments) are "
                f"{train / GIB:.0f} GiB on each, of {memory / GIB:.0f} GiB"
            )
    return kept, words
