"""Tables of older schemas brought up to this one's."""

from collections.abc import Callable, Mapping

import pyarrow as pa

from results.schema import TABLES

Migration = Callable[[str, pa.Table], pa.Table]

# Nullable columns that version 2 has and version 1 had not: what version 1 did not record is unknown.
_NEW_IN_2: Mapping[str, tuple[str, ...]] = {
    "trajectories": ("loss_tokens", "sequence_tokens"),
    "turns": ("cache_break",),
    "tool_calls": ("call", "argument", "http_status", "wire_bytes", "served_ns", "detail"),
    "samples": (
        "ecc_corrected_errors",
        "ecc_uncorrected_errors",
        "dcgm_sm_active_ratio",
        "dcgm_sm_occupancy_ratio",
        "dcgm_tensor_active_ratio",
        "dcgm_dram_active_ratio",
        "dcgm_power_instant_watts",
        "dcgm_pcie_tx_bytes_per_s",
        "dcgm_pcie_rx_bytes_per_s",
        "dcgm_nvlink_tx_bytes_per_s",
        "dcgm_nvlink_rx_bytes_per_s",
    ),
}


def _to_2(name: str, table: pa.Table) -> pa.Table:
    for column in _NEW_IN_2.get(name, ()):
        kind = TABLES[name].field(column).type
        table = table.append_column(column, pa.nulls(table.num_rows, kind))
    return table


# version -> (table name, table of that version) -> table of version + 1. One entry per version ever written.
MIGRATIONS: Mapping[int, Migration] = {1: _to_2}
