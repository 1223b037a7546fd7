"""Reading an answer: no more than a number of bytes, on the wire and unpacked, whatever the other side sends."""

import zlib
from dataclasses import dataclass

import aiohttp

ACCEPT_ENCODING = "gzip, deflate"  # what `read` unpacks
_CHUNK = 64 * 1024


class EncodingError(Exception):
    """The answer is packed in a way that was not asked for, or is damaged."""


@dataclass(frozen=True, slots=True)
class Body:
    """What was read."""

    data: bytes
    wire_bytes: int
    cut: bool  # there was more


async def read(response: aiohttp.ClientResponse, limit: int) -> Body:
    """Up to `limit` bytes of an answer of a session with `auto_decompress=False`.

    Unpacking is done here and not by the client, so that a small answer that unpacks to gigabytes (a bomb) never
    takes more memory than the limit.

    Raises:
        EncodingError: see there.
        aiohttp.ClientError: the connection broke.
    """
    named = response.headers.get("Content-Encoding", "").strip().lower()
    unpacker = _unpacker(named)
    data = bytearray()
    wire = 0
    async for chunk in response.content.iter_chunked(_CHUNK):
        wire += len(chunk)
        data += unpacker.unpack(chunk, limit + 1 - len(data))
        if len(data) > limit or wire > limit:
            response.close()  # or the client would read the rest to keep the connection
            return Body(bytes(data[:limit]), wire, cut=True)
    if not unpacker.complete and wire:
        raise EncodingError(f"the {named} data end too early")
    return Body(bytes(data), wire, cut=False)


class _Plain:
    complete = True

    def unpack(self, chunk: bytes, room: int) -> bytes:
        return chunk[:room]


class _Packed:
    """gzip (several members too) and deflate, with or without zlib's header."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._window = 16 + zlib.MAX_WBITS if name == "gzip" else zlib.MAX_WBITS
        self._object = zlib.decompressobj(self._window)
        self._fresh = True

    @property
    def complete(self) -> bool:
        return self._object.eof

    def unpack(self, chunk: bytes, room: int) -> bytes:
        out = bytearray()
        rest = chunk
        while rest and len(out) < room:
            if self._object.eof:
                if self._name != "gzip" or not rest.strip(b"\0"):
                    break  # padding, or what no browser would read either
                self._object = zlib.decompressobj(self._window)
            try:
                out += self._object.decompress(rest, room - len(out))
            except zlib.error as error:
                if self._fresh and self._name == "deflate" and self._window > 0:
                    self._window = -zlib.MAX_WBITS  # many servers send it without the header
                    self._object = zlib.decompressobj(self._window)
                    continue
                raise EncodingError(f"the {self._name} data are damaged: {error}") from None
            self._fresh = False
            rest = self._object.unused_data if self._object.eof else self._object.unconsumed_tail
        return bytes(out)


def _unpacker(name: str) -> _Plain | _Packed:
    if name in ("", "identity"):
        return _Plain()
    if name in ("gzip", "x-gzip"):
        return _Packed("gzip")
    if name == "deflate":
        return _Packed("deflate")
    raise EncodingError(f"the answer is packed as {name[:40]!r}, which was not asked for")
