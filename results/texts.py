"""Columns of texts, plain or dictionary-encoded: where a few texts make millions of rows, their codes are cheaper."""

from collections.abc import Collection

import pyarrow as pa


def encoded(schema: pa.Schema, names: Collection[str] | None = None) -> pa.Schema:
    """The schema with some columns of texts (None: all) dictionary-encoded."""
    return pa.schema(
        [
            field.with_type(pa.dictionary(pa.int32(), field.type))
            if field.type == pa.string() and (names is None or field.name in names)
            else field
            for field in schema
        ]
    )


def texts_as(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table, its columns of texts plain or encoded as `schema` has them; one that this has not stays as it is."""
    for place, name in enumerate(table.column_names):
        at = schema.get_field_index(name)
        if at < 0 or table.schema.field(place).type == schema.field(at).type:
            continue
        field, column = schema.field(at), table.column(place)
        if field.type == pa.string() and pa.types.is_dictionary(column.type):
            table = table.set_column(place, field, column.cast(field.type))
        elif column.type == pa.string() and pa.types.is_dictionary(field.type):
            table = table.set_column(place, field, column.dictionary_encode())
    return table
