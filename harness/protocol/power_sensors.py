"""What a power reading of an NVIDIA GPU means: instant or averaged, over how long, and how much of the time it sees.

Two sources, and nothing beyond them. [N]: NVIDIA, NVML API reference, `nvmlDeviceGetPowerUsage`: on Ampere except
GA100, and on what came after, an average over one second; on GA100 and older, instantaneous; the field values
NVML_FI_DEV_POWER_AVERAGE and NVML_FI_DEV_POWER_INSTANT say which one is wanted. [Y]: Yang, Adamek, Armour,
"Part-time Power Measurements: nvidia-smi's Lack of Attention" (arXiv 2312.02741, 2023) and "Accurate and Convenient
Energy Measurements for GPUs" (SC24, 2024): of more than 70 GPUs, A100 and H100 sample a quarter of the run time.
A share that neither tells is None: not known, and not taken for 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass

AVERAGE_WINDOW_S = 1.0  # [N]
DOCUMENTED = "NVML API reference"
STUDIED = "Yang, Adamek, Armour 2023/2024"


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerSensor:
    """The power sensor of one chip or family.

    `plain_window_s`: seconds that `nvmlDeviceGetPowerUsage` averages over; 0: instantaneous. `covered_ratio`: share of
    the time that instant power is a measurement of; None: not published. `studied`: boards that this was measured on.
    """

    chip: str
    plain_window_s: float
    covered_ratio: float | None
    studied: tuple[str, ...] = ()

    @property
    def part_time(self) -> bool:
        """Whether the sensor is known not to look all the time."""
        return self.covered_ratio is not None and self.covered_ratio < 1

    @property
    def words(self) -> str:
        """The meaning in one line, with its sources."""
        plain = "is instantaneous" if not self.plain_window_s else f"averages over {self.plain_window_s:g} s"
        text = f"{self.chip}: the plain power reading {plain} ({DOCUMENTED}); "
        if self.covered_ratio is None:
            return text + "what share of the time the sensor sees is not published"
        boards = ", ".join(self.studied)
        return text + f"the sensor sees {self.covered_ratio:.0%} of the time ({STUDIED}, on {boards})"


_QUARTER = 0.25
# By CUDA compute capability (major, minor), else by major alone.
BY_CAPABILITY: Mapping[tuple[int, int | None], PowerSensor] = {
    (5, None): PowerSensor(chip="Maxwell", plain_window_s=0.0, covered_ratio=None),
    (6, None): PowerSensor(chip="Pascal", plain_window_s=0.0, covered_ratio=None),
    (7, 0): PowerSensor(chip="Volta", plain_window_s=0.0, covered_ratio=None),
    (7, 5): PowerSensor(chip="Turing", plain_window_s=0.0, covered_ratio=None),
    (8, 0): PowerSensor(chip="GA100", plain_window_s=0.0, covered_ratio=_QUARTER, studied=("A100",)),
    (8, None): PowerSensor(chip="Ampere but GA100", plain_window_s=AVERAGE_WINDOW_S, covered_ratio=None),
    (8, 9): PowerSensor(chip="Ada", plain_window_s=AVERAGE_WINDOW_S, covered_ratio=None),
    (9, 0): PowerSensor(chip="GH100", plain_window_s=AVERAGE_WINDOW_S, covered_ratio=_QUARTER, studied=("H100",)),
    (10, None): PowerSensor(chip="Blackwell", plain_window_s=AVERAGE_WINDOW_S, covered_ratio=None),
    (12, None): PowerSensor(chip="Blackwell", plain_window_s=AVERAGE_WINDOW_S, covered_ratio=None),
}
# Where only the board's name is known: boards with these chips.
_BY_NAME: Mapping[str, tuple[int, int]] = {
    **dict.fromkeys(("A100", "A800", "A30"), (8, 0)),
    **dict.fromkeys(("H100", "H200", "H800", "H20", "GH200"), (9, 0)),
    "V100": (7, 0),
    "T4": (7, 5),
    **dict.fromkeys(("L4", "L40", "L40S"), (8, 9)),
    **dict.fromkeys(("B100", "B200", "GB200", "B300", "GB300"), (10, 0)),
}


def sensor_of(capability: str | None, name: str = "") -> PowerSensor | None:
    """The sensor of a GPU by its compute capability ("9.0"), else by its board's name; None: neither is known."""
    key = _parsed(capability)
    if key is None:
        words = name.replace("-", " ").split()
        key = next((_BY_NAME[word] for word in words if word in _BY_NAME), None)
    if key is None:
        return None
    return BY_CAPABILITY.get(key) or BY_CAPABILITY.get((key[0], None))


def _parsed(capability: str | None) -> tuple[int, int] | None:
    major, dot, minor = (capability or "").partition(".")
    return (int(major), int(minor)) if dot and major.isdigit() and minor.isdigit() else None
