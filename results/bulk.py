"""Lines of the kinds that come by the million, read together: turns, tool calls, plain spans, trajectories, opens.

Arrow's JSON reader takes them with the declared types. Whatever it does not take, and whatever the declared types do
not say (a field of another kind, an unknown attribute, a time that ends before it begins), is left to the reading line
by line, which tells each damage: so nothing is different for it but the time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from types import NoneType, UnionType
from typing import Any, get_args, get_type_hints

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from harness.protocol.events import Event, Open, Span, Trajectory
from harness.protocol.phases import TOOL_ATTRIBUTES, TURN_ATTRIBUTES, Phase
from results.attributes import FLAG_ATTRIBUTES, TEXT_ATTRIBUTES
from results.reading import INT_LIMIT

LEAST_LINES = 64  # fewer are read as quickly one by one

_TYPES = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


@dataclass(frozen=True, slots=True)
class Kind:
    """Lines that are read together, and what each must have."""

    name: str
    schema: pa.Schema
    required: tuple[str, ...]
    attributes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bulk:
    """The events of some lines of one kind."""

    kind: Kind
    table: pa.Table
    lines: npt.NDArray[np.int64]  # their numbers in the file

    def times(self) -> tuple[int, int]:
        """First and last instant they speak of."""
        last = "end_ns" if "end_ns" in self.table.column_names else "start_ns"
        return pc.min(self.table["start_ns"]).as_py(), pc.max(self.table[last]).as_py()


def _attribute_type(name: str) -> pa.DataType:
    return pa.string() if name in TEXT_ATTRIBUTES else pa.bool_() if name in FLAG_ATTRIBUTES else pa.int64()


def _kind(name: str, event: type[Event], *, without: Sequence[str] = (), attributes: tuple[str, ...] = ()) -> Kind:
    hints = get_type_hints(event)
    columns: list[tuple[str, pa.DataType]] = [("k", pa.string())]
    required = ["k"]
    for one in fields(event):
        if one.name in without:
            continue
        hint = hints[one.name]
        options = set(get_args(hint)) if isinstance(hint, UnionType) else {hint}
        if one.name == "attributes":
            columns.append(("attributes", pa.struct([(name, _attribute_type(name)) for name in attributes])))
            required.append("attributes")
            continue
        (plain,) = options - {NoneType}
        columns.append((one.name, _TYPES[plain]))
        # One with a default may be left out, but null is no value of it: where it is not there, look at the line.
        if NoneType not in options:
            required.append(one.name)
        assert NoneType in options or one.default is MISSING or one.name == "container"
    return Kind(name, pa.schema(columns), tuple(required), attributes)


TURNS = _kind("turns", Span, attributes=TURN_ATTRIBUTES)
TOOL_CALLS = _kind("tool_calls", Span, attributes=TOOL_ATTRIBUTES)
SPANS = _kind("spans", Span, without=("attributes",))
TRAJECTORIES = _kind("trajectories", Trajectory)
OPENS = _kind("opens", Open)

_TURN = f'{{"k":"span","phase":"{Phase.GENERATION.value}"'.encode()
_TOOL = f'{{"k":"span","phase":"{Phase.TOOL.value}"'.encode()
_SPAN, _TRAJECTORY, _OPEN, _ATTRIBUTES = b'{"k":"span"', b'{"k":"trajectory"', b'{"k":"open"', b'"attributes"'


def kind_of(line: bytes) -> Kind | None:
    """Which kind a line is to be read as; None: by itself."""
    if line.startswith(_TURN):
        return TURNS
    if line.startswith(_TOOL):
        return TOOL_CALLS
    if line.startswith(_SPAN):
        return None if _ATTRIBUTES in line else SPANS
    if line.startswith(_TRAJECTORY):
        return TRAJECTORIES
    return OPENS if line.startswith(_OPEN) else None


def read(kind: Kind, lines: Sequence[bytes], numbers: Sequence[int]) -> Bulk | None:
    """The events of lines of one kind; None where one of them is to be looked at by itself."""
    joined = b"\n".join(lines)
    try:
        if not joined.isascii():
            joined.decode()
        table = pyarrow.json.read_json(
            pa.BufferReader(joined),
            read_options=pyarrow.json.ReadOptions(block_size=len(joined) + 1),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=kind.schema, newlines_in_values=False, unexpected_field_behavior="infer"
            ),
        )
    except (pa.ArrowException, UnicodeDecodeError):
        return None
    if table.schema != kind.schema or table.num_rows != len(lines):
        return None
    table = table.combine_chunks()
    if any(table[name].null_count for name in kind.required) or not _sound(kind, table):
        return None
    return Bulk(kind, table, np.array(numbers, dtype=np.int64))


def _sound(kind: Kind, table: pa.Table) -> bool:
    columns: list[pa.ChunkedArray] = list(table.columns)
    if kind.attributes:
        if table["trajectory_id"].null_count:
            return False
        columns += table["attributes"].chunk(0).flatten()
    if not all(_storable(column) for column in columns):
        return False
    return "end_ns" not in table.column_names or not pc.any(pc.less(table["end_ns"], table["start_ns"])).as_py()


def _storable(column: pa.ChunkedArray | pa.Array) -> bool:
    if column.type not in (pa.int64(), pa.float64()) or column.null_count == len(column):
        return True
    least = pc.min_max(column)
    low, high = least["min"].as_py(), least["max"].as_py()
    if column.type == pa.float64() and not pc.all(pc.is_finite(column)).as_py():
        return False
    return bool(low >= -INT_LIMIT and high < INT_LIMIT)


def columns_of(bulk: Bulk) -> Mapping[str, Any]:
    """The columns by name, attributes among them."""
    found = {name: bulk.table[name] for name in bulk.table.column_names if name != "attributes"}
    if bulk.kind.attributes:
        struct = bulk.table["attributes"].chunk(0)
        found |= {name: struct.field(place) for place, name in enumerate(bulk.kind.attributes)}
    return found
