"""SQL over the tables of many runs, by DuckDB: every table is a view, and nothing but those tables can be read.

DuckDB is the extra `query`. It works in memory, writes nothing, loads no extension and opens no other file.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from harness.protocol.errors import EnvError, SpecError
from results.columns import BOOL, FLOAT, FLOATS, INT, TEXT, TEXTS
from results.opening import RUN_ID, Runs, columns_of
from results.store import check_table, read_table, table_path

if TYPE_CHECKING:
    import duckdb

_FILES = "bench_files"
_SQL_TYPES = {INT: "BIGINT", FLOAT: "DOUBLE", TEXT: "VARCHAR", BOOL: "BOOLEAN", TEXTS: "VARCHAR[]", FLOATS: "DOUBLE[]"}
_CONFIG: Mapping[str, str] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",  # else what does not fit into memory is written below the current folder
}
_MISSING = "DuckDB is not installed: pip install 'agentic-rl-bench[query]'"


def query(runs: Runs, sql: str) -> pa.Table:
    """The answer to one SELECT over views that are named as the tables, each with its run's `run_id`.

    Tables of an older schema have null where a column is newer.

    Raises:
        SpecError: not one statement that only reads; or DuckDB refuses it: says why.
        EnvError: DuckDB is not installed.
    """
    try:
        import duckdb
    except ImportError:
        raise EnvError(_MISSING) from None
    # A view reads the schema of each of its files: only those that the text can mean are made.
    names = [name for name in runs.tables if name in sql.lower()]
    _check_files(runs, names, whole=False)
    connection = duckdb.connect(":memory:", config=dict(_CONFIG))
    try:
        _make_views(connection, runs, names)
        statements = connection.extract_statements(sql)
        if len(statements) != 1:
            raise SpecError(f"query: {len(statements)} statements; give one SELECT")
        if statements[0].type != duckdb.StatementType.SELECT:
            kind = str(statements[0].type).rpartition(".")[2]
            raise SpecError(f"query: {kind} is refused: runs are only read; give one SELECT")
        relation = connection.sql(sql)
        table: pa.Table = relation.to_arrow_table()
    except duckdb.InterruptException:
        raise KeyboardInterrupt from None
    except RuntimeError as error:
        if "interrupt" in str(error).lower():  # Ctrl-C, as DuckDB tells it while it hands out rows
            raise KeyboardInterrupt from None
        raise
    except duckdb.Error as error:
        if not isinstance(error, duckdb.ParserException | duckdb.BinderException | duckdb.CatalogException):
            _check_files(runs, names, whole=True)  # names the run, where one of its tables is what is wrong
        raise SpecError(f"query: {' '.join(str(error).split())}") from None
    finally:
        connection.close()
    return table


def _check_files(runs: Runs, names: Sequence[str], *, whole: bool) -> None:
    """Whether the tables of those names can be read: what describes them, or `whole`.

    Raises:
        SpecError: names the run, the table and what to do.
    """
    for folder in runs.folders.values():
        for name in names:
            path = table_path(folder, name)
            if path.is_file():
                if whole:
                    read_table(path, name)
                else:
                    check_table(path, name)


def _make_views(connection: "duckdb.DuckDBPyConnection", runs: Runs, names: Sequence[str]) -> None:
    """Gives a connection the views of those names, and takes all other power from it."""
    files: dict[str, list[str]] = {}
    ids: list[tuple[str, str]] = []
    for run_id, folder in runs.folders.items():
        for name in names:
            path = table_path(folder, name)
            if path.is_file():
                files.setdefault(name, []).append(str(path))
                ids.append((str(path), run_id))
    connection.execute(f"CREATE TABLE {_FILES} (file VARCHAR, of_run VARCHAR)")
    if ids:
        rows = ", ".join(f"({_text(path)}, {_text(run_id)})" for path, run_id in ids)
        connection.execute(f"INSERT INTO {_FILES} VALUES {rows}")
    for name in names:
        connection.execute(_view(name, files.get(name, [])))
    connection.execute(f"SET allowed_paths = [{', '.join(_text(path) for path, _ in ids)}]")
    connection.execute("SET enable_external_access = false")  # but for these
    connection.execute("SET lock_configuration = true")


def _view(name: str, files: list[str]) -> str:
    columns = columns_of(name)
    nothing = ", ".join(f"CAST(NULL AS {_SQL_TYPES[one.type]}) AS {_quoted(one.name)}" for one in columns)
    declared = f"SELECT {nothing} WHERE false"
    if not files:
        return f"CREATE VIEW {_quoted(name)} AS {declared}"
    read = f"read_parquet([{', '.join(map(_text, files))}], union_by_name = true, filename = 'bench_file')"
    own = [one.name for one in columns]
    if name == "runs":
        wanted = f"SELECT * EXCLUDE (bench_file) FROM {read}"
    else:
        renamed = "* EXCLUDE (bench_file, run_id), read.run_id AS said_run_id" if "said_run_id" in own else ""
        wanted = (
            f"SELECT {_FILES}.of_run AS {RUN_ID.name}, read.{renamed or '* EXCLUDE (bench_file)'}"
            f" FROM {read} AS read JOIN {_FILES} ON {_FILES}.file = read.bench_file"
        )
    # The declared columns first, with their types: a run of an older schema lacks some, and of all runs may lack one.
    return f"CREATE VIEW {_quoted(name)} AS {declared} UNION ALL BY NAME {wanted}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
