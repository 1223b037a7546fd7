"""Names of files and folders that are no text: what is written of a run (JSON, Parquet, pages) can't hold them."""

from os import PathLike, fspath

from harness.protocol.scalars import text

NOT_UTF8 = "the name is not valid UTF-8"


def is_text(path: str | PathLike[str]) -> bool:
    """Whether a name can be written as UTF-8; bytes that can't be are half surrogate pairs in Python's texts."""
    return text(fspath(path)) is not None


def shown(path: str | PathLike[str]) -> str:
    """A name as text that can be written anywhere, e.g. `runs/x\\udcff`; one that is valid stays as it is."""
    return fspath(path).encode("utf-8", "backslashreplace").decode("utf-8")
