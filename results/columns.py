"""A column of a table, declared as data: name, type, unit, whether unknown is possible, and what it holds."""

from dataclasses import dataclass

import pyarrow as pa

INT = pa.int64()
FLOAT = pa.float64()
TEXT = pa.string()
BOOL = pa.bool_()
TEXTS = pa.list_(TEXT)
FLOATS = pa.list_(FLOAT)


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `unit` is "" for names, flags and JSON; counts of things have the thing as their unit."""

    name: str
    type: pa.DataType
    unit: str
    nullable: bool
    doc: str

    @property
    def field(self) -> pa.Field:
        """The Arrow field, with unit and doc in its metadata."""
        return pa.field(self.name, self.type, nullable=self.nullable, metadata={"unit": self.unit, "doc": self.doc})


def required(name: str, kind: pa.DataType, doc: str, *, unit: str = "") -> Column:
    """A column that every row has a value in."""
    return Column(name, kind, unit, False, doc)


def nullable(name: str, kind: pa.DataType, doc: str, *, unit: str = "") -> Column:
    """A column whose value may be unknown."""
    return Column(name, kind, unit, True, doc)
