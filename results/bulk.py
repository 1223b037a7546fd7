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
BLOCK_BYTES = 2**20  # parsed by one thread at a time, while a processor's own cache holds them

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

KINDS = (TURNS, TOOL_CALLS, SPANS, TRAJECTORIES, OPENS)

_WORD = 8  # bytes
_SPAN, _ATTRIBUTES = b'{"k":"span"', '"attributes"'
_BEGINS = (  # the first that fits
    (TURNS, _SPAN + f',"phase":"{Phase.GENERATION.value}"'.encode()),
    (TOOL_CALLS, _SPAN + f',"phase":"{Phase.TOOL.value}"'.encode()),
    (SPANS, _SPAN),
    (TRAJECTORIES, b'{"k":"trajectory"'),
    (OPENS, b'{"k":"open"'),
)


def kinds_of(lines: pa.LargeBinaryArray) -> npt.NDArray[np.int8]:
    """Which of `KINDS` each line is to be read as, by its place among them; -1: by itself."""
    _, offsets, data = lines.buffers()
    places = np.frombuffer(offsets, np.int64)[lines.offset : lines.offset + len(lines) + 1]
    letters = np.frombuffer(data, np.uint8)
    found = np.full(len(lines), -1, dtype=np.int8)
    for kind, begin in _BEGINS:
        fits = np.flatnonzero((found < 0) & (np.diff(places) >= len(begin)))
        for step in range(0, len(begin), _WORD):
            if not fits.size:
                break
            at = min(step, len(begin) - _WORD)  # the last word may overlap the one before it
            words = np.ndarray(letters.size - _WORD + 1, np.uint64, letters, strides=(1,))
            fits = fits[words[places[fits] + at] == np.frombuffer(begin, np.uint64, 1, at)[0]]
        if fits.size:
            if kind is SPANS:
                with_attributes = pc.match_substring(lines.take(pa.array(fits)), _ATTRIBUTES)
                fits = fits[~with_attributes.to_numpy(zero_copy_only=False)]
            found[fits] = KINDS.index(kind)
    return found


def read(kind: Kind, lines: pa.LargeBinaryArray, numbers: npt.NDArray[np.int64]) -> Bulk | None:
    """The events of lines of one kind; None where one of them is to be looked at by itself.

    `lines` have a buffer of their own, in which there is nothing else.
    """
    _, offsets, data = lines.buffers()
    try:
        pa.Array.from_buffers(pa.large_string(), len(lines), [None, offsets, data]).validate(full=True)  # UTF-8
        table = pyarrow.json.read_json(
            pa.BufferReader(data),
            read_options=pyarrow.json.ReadOptions(block_size=max(BLOCK_BYTES, _longest(offsets, len(lines)))),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=kind.schema, newlines_in_values=False, unexpected_field_behavior="infer"
            ),
        )
    except pa.ArrowException:
        return None
    if table.schema != kind.schema or table.num_rows != len(lines):
        return None
    table = table.combine_chunks()
    if any(table[name].null_count for name in kind.required) or not _sound(kind, table):
        return None
    return Bulk(kind, table, numbers)


def _longest(offsets: pa.Buffer, lines: int) -> int:
    """A block that has room for each of so many lines: Arrow refuses one that is longer than two of them."""
    return int(np.diff(np.frombuffer(offsets, np.int64, lines + 1)).max(initial=0)) + 1


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
