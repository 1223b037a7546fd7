"""The fields of DCGM that are sampled: ids, the names that exporters give them, columns, and what is no value.

Names and ids: dcgm_fields.h of DCGM 4; the ratio fields have a second, newer name there, and an exporter uses
whichever name its counters file has.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

from harness.telemetry.values import Value, clean

LONGEST_INTEGER = 20  # characters of 64 bits with a sign
HIGHEST_RATIO = 1.0 + 1e-6  # more is no share of the GPU: seen where MIG instances are summed up


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field: its column of the samples, its DCGM id, its names in an exposition, and its dmon heading."""

    column: str
    id: int
    names: tuple[str, ...]
    help: str  # for a line of the exporter's counters file
    ratio: bool = False
    default: bool = True  # whether dcgm-exporter's own list of counters has it

    @property
    def line(self) -> str:
        """The line of a counters file that turns the field on."""
        return f"{self.names[0]}, gauge, {self.help}."


FIELDS = (
    Field(
        column="dcgm_sm_active_ratio",
        id=1002,
        names=("DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_SM_UTIL_RATIO"),
        help="Share of cycles an SM has a warp",
        ratio=True,
        default=False,
    ),
    Field(
        column="dcgm_sm_occupancy_ratio",
        id=1003,
        names=("DCGM_FI_PROF_SM_OCCUPANCY", "DCGM_FI_PROF_SM_OCCUPANCY_RATIO"),
        help="Resident warps over the most possible",
        ratio=True,
        default=False,
    ),
    Field(
        column="dcgm_tensor_active_ratio",
        id=1004,
        names=("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_TENSOR_UTIL_RATIO"),
        help="Share of cycles the tensor pipe is busy",
        ratio=True,
    ),
    Field(
        column="dcgm_dram_active_ratio",
        id=1005,
        names=("DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_DRAM_UTIL_RATIO"),
        help="Share of cycles the device memory moves data",
        ratio=True,
    ),
    Field(
        column="dcgm_pcie_tx_bytes_per_s",
        id=1009,
        names=("DCGM_FI_PROF_PCIE_TX_BYTES",),
        help="PCIe bytes per second sent",
    ),
    Field(
        column="dcgm_pcie_rx_bytes_per_s",
        id=1010,
        names=("DCGM_FI_PROF_PCIE_RX_BYTES",),
        help="PCIe bytes per second received",
    ),
    Field(
        column="dcgm_nvlink_tx_bytes_per_s",
        id=1011,
        names=("DCGM_FI_PROF_NVLINK_TX_BYTES",),
        help="NVLink bytes per second sent",
        default=False,
    ),
    Field(
        column="dcgm_nvlink_rx_bytes_per_s",
        id=1012,
        names=("DCGM_FI_PROF_NVLINK_RX_BYTES",),
        help="NVLink bytes per second received",
        default=False,
    ),
    Field(
        column="dcgm_power_instant_watts",
        id=157,
        names=("DCGM_FI_DEV_POWER_USAGE_INSTANT", "DCGM_FI_DEV_BOARD_POWER_RAW_WATTS"),
        help="Instant power in W",
        default=False,
    ),
)
BY_NAME: Mapping[str, Field] = {name: field for field in FIELDS for name in field.names}


def number(text: str) -> int | float:
    """The number that a text of DCGM stands for; an integer stays one, so that integer blanks are recognised.

    Raises:
        ValueError: the text is no number.
    """
    if len(text) <= LONGEST_INTEGER:
        with contextlib.suppress(ValueError):
            return int(text)
    return float(text)


def reading(field: Field, raw: int | float) -> tuple[Value, str | None]:
    """(value as the column has it, None), or (None, reason) where the number is no value."""
    value = clean(raw)
    if value is None:
        return None, "blank value"
    if field.ratio and not 0 <= value <= HIGHEST_RATIO:
        return None, f"{value:g} is no share (instances summed up?)"
    if not field.ratio and value < 0:
        return None, f"{value:g} is negative"
    if field.id == 157 and value == 0:
        return None, "reads 0 W, which no powered GPU draws"
    return float(value), None
