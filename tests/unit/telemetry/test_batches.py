"""Messages that are made by hand are those that Arrow makes."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.telemetry.batches import Batches
from harness.telemetry.segment import SCHEMA

VALUES = {
    pa.string(): st.text(max_size=5),
    pa.float64(): st.floats(allow_nan=False),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
}
FIELDS = {field.name: field for field in SCHEMA}


@st.composite
def tables(draw):
    count = draw(st.integers(1, 70))
    names = draw(st.sets(st.sampled_from(SCHEMA.names)))
    one = {name: VALUES[FIELDS[name].type] for name in sorted(names)}
    whole = {name: draw(st.booleans()) for name in one}
    return count, {
        name: draw(st.lists(value if whole[name] else st.none() | value, min_size=count, max_size=count))
        for name, value in one.items()
    }


def arrow(count, columns):
    arrays = [pa.array(columns.get(field.name, [None] * count), field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


@settings(max_examples=60, deadline=None)
@given(table=tables(), cut=st.integers(0, 70))
def test_a_message_is_byte_for_byte_the_one_that_arrow_makes(table, cut):
    count, columns = table
    at = min(cut, count)
    pieces = {name: [(0, values[:at]), (at, values[at:])] for name, values in columns.items()}
    assert Batches(SCHEMA).message(count, pieces) == arrow(count, columns).serialize().to_pybytes()


def test_rows_that_no_piece_has_are_null():
    message = Batches(SCHEMA).message(9, {"host": [(2, ["a", None, "ß"])], "mono_ns": [(7, (5,)), (1, (None,))]})
    batch = pa.ipc.read_record_batch(pa.py_buffer(message), SCHEMA)
    batch.validate(full=True)
    assert batch.column("host").to_pylist() == [None, None, "a", None, "ß", None, None, None, None]
    assert batch.column("mono_ns").to_pylist() == [None] * 7 + [5, None]
    assert batch.column("energy_joules").null_count == 9


@pytest.mark.parametrize("kind", [pa.int32(), pa.list_(pa.int64())])
def test_a_schema_of_other_types_is_refused(kind):
    with pytest.raises(KeyError):
        Batches(pa.schema([pa.field("a", kind)]))
