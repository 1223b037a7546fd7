"""What a user says of a source that does not say it itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from results.throughput import PEAK_BF16_FLOPS, peak_flops


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Facts beside the figures; None: not given, and what needs them cannot be checked."""

    columns: Mapping[str, str] = field(default_factory=dict)  # heading of a column -> name of a figure [: unit]
    gpu: str | None = None  # name of the GPUs
    gpus: int | None = None  # all GPUs of the run
    limit_watts: float | None = None  # power limit of one GPU
    max_staleness: int | None = None
    slack: float = 0.0  # relative difference to let pass beside the rounding

    @property
    def peak(self) -> float | None:
        """Dense bf16 peak of the GPU named, FLOP/s; of a family's name (`H100`), that of its fastest."""
        return None if self.gpu is None else gpu_peak(self.gpu)


def gpu_peak(name: str) -> float | None:
    """Dense bf16 peak by name, FLOP/s: as NVML names it, or the family's fastest; None when neither is known."""
    exact = peak_flops(name)
    if exact is not None:
        return exact
    wanted = name.strip().casefold()
    family = [peak for known, peak in PEAK_BF16_FLOPS if wanted and known.casefold().split()[0] == wanted]
    return max(family, default=None)
