"""Which characters a page's bytes are, when what the server says, what the page says and what is true differ."""

import codecs
import re

_META = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([a-zA-Z0-9_.:-]{1,40})""", re.IGNORECASE)
_XML = re.compile(rb"""^<\?xml[^>]{0,200}?encoding\s*=\s*["']([a-zA-Z0-9_.:-]{1,40})""", re.IGNORECASE)
_HEAD = 4_096  # bytes in which a page names its encoding
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Names that mean more on the web than they say (the WHATWG's encoding standard).
_WIDER = {
    "iso8859-1": "cp1252", "ascii": "cp1252", "gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932",
    "euc_kr": "cp949", "iso8859-9": "cp1254", "tis-620": "cp874", "big5": "big5hkscs",
}  # fmt: skip
_NOT_TEXT = frozenset({"base64", "hex", "rot13", "bz2", "zlib", "uu", "quopri", "utf-7", "idna", "punycode"})
OTHER_STARTS = (
    b"%PDF",
    b"PK\x03\x04",
    b"\x89PNG",
    b"\xff\xd8\xff",
    b"GIF8",
)  # of files that are no text, whatever their name
_MANY_CONTROLS = 0.02  # share of control characters above which bytes are no text


def decoded(data: bytes, declared: str | None, *, html: bool) -> str | None:
    """The text of some bytes, which may end inside a character; None if they are no text.

    In order: a byte order mark; UTF-8 if they have bytes beyond ASCII and all are valid (chance makes that nearly
    impossible, and wrong declarations are common); the server's charset; the page's own; a guess by frequency;
    Windows-1252 with what doesn't fit replaced.
    """
    for mark, name in _MARKS:
        if data.startswith(mark):
            return plain(_try(data, name, strict=False))
    names = [_known(declared)]
    if html or data.startswith(b"<?xml"):
        found = _META.search(data[:_HEAD]) or _XML.search(data[:_HEAD])
        # Found as single bytes, so it can't be one of two: the standard reads it as UTF-8.
        named = _known(found[1].decode("ascii")) if found else None
        names.append("utf-8" if named is not None and named.startswith(("utf-16", "utf-32")) else named)
    if not data.isascii() and b"\0" not in data:
        names.insert(0, "utf-8")
    for candidate in names:
        text = _try(data, candidate, strict=True) if candidate is not None else None
        if text is not None and "\0" not in text[:_HEAD]:
            return plain(text)
    if data.isascii() and b"\0" not in data:
        return plain(data.decode("ascii"))
    guess = _guess(data)
    return plain(_try(data, guess or "cp1252", strict=False))


def _known(name: str | None) -> str | None:
    if not name:
        return None
    try:
        found = codecs.lookup(name.strip().strip("\"'")).name
    except (LookupError, ValueError):
        return None
    return None if found in _NOT_TEXT else _WIDER.get(found, found)


def _try(data: bytes, name: str, *, strict: bool) -> str | None:
    try:
        # An incremental decoder takes a character that is cut off at the end for what it is.
        return codecs.getincrementaldecoder(name)("strict" if strict else "replace").decode(data)
    except (UnicodeError, LookupError, TypeError):
        return None


def _guess(data: bytes) -> str | None:
    from charset_normalizer import from_bytes

    best = from_bytes(data[:65_536], steps=3, chunk_size=1_024).best()
    return best.encoding if best is not None else None


def plain(text: str | None) -> str | None:
    """The text, unless it is a picture or a program that someone called text."""
    if text is None:
        return None
    start = text[:_HEAD]
    controls = sum(1 for each in start if each < " " and each not in "\t\n\r\f\x1b") + start.count("\ufffd")
    return None if start and controls / len(start) > _MANY_CONTROLS else text.replace("\0", "")
