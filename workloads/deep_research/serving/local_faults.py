"""What goes wrong on the local web when it is told to: at the level of HTTP, as on the real one."""

import asyncio
import random
from collections import Counter
from collections.abc import Mapping

from aiohttp import web

from workloads.deep_research.faults import (
    EMPTY,
    ERROR,
    GARBLED,
    HUGE,
    KINDS,
    REDIRECTS,
    REFUSED,
    SLOW,
    TIMEOUT,
)

RESET = "reset"  # the connection breaks in the middle of the page
ALL = (*KINDS, RESET)
HANG_S = 600.0  # longer than any client waits
DRIPS, DRIP_S = 20, 0.1  # a slow page comes in so many pieces, so far apart
HUGE_BYTES = 8 << 20
_FILLING = b"<p>" + b"The table goes on and on with figures of no use. " * 80 + b"</p>\n"


class LocalFaults:
    """Draws the fault of each answer from rates by kind; the same seed draws the same sequence."""

    def __init__(self, rates: Mapping[str, float] | None = None, *, seed: int = 1) -> None:
        self.rates = dict(rates or {})
        self.planted: Counter[str] = Counter()
        self._dice = random.Random(seed)

    def draw(self) -> str | None:
        """The next answer's fault; None: it goes well."""
        if not self.rates:
            return None
        value = self._dice.random()
        for kind, rate in self.rates.items():
            value -= rate
            if value < 0:
                self.planted[kind] += 1
                return kind
        return None


def parse_faults(text: str) -> dict[str, float]:
    """`timeout=0.01,error=0.02` as rates by kind.

    Raises:
        ValueError: an unknown kind, no rate, or rates of more than 1 in all.
    """
    rates: dict[str, float] = {}
    for part in filter(None, text.split(",")):
        kind, _, value = part.partition("=")
        if kind not in ALL:
            raise ValueError(f"faults = {text!r}: {kind!r}: allowed is {', '.join(ALL)}")
        try:
            rates[kind] = float(value)
        except ValueError:
            raise ValueError(f"faults = {text!r}: {kind} needs a rate from 0 to 1") from None
        if not 0 <= rates[kind] <= 1:
            raise ValueError(f"faults = {text!r}: {kind} needs a rate from 0 to 1")
    if sum(rates.values()) > 1:
        raise ValueError(f"faults = {text!r}: the rates are more than 1 in all")
    return rates


async def spoiled(request: web.Request, kind: str, body: bytes, content_type: str, empty: bytes) -> web.StreamResponse:
    """The answer that would have been `body`, gone wrong in one way; `empty` is what has nothing in it."""
    if kind == TIMEOUT:
        await asyncio.sleep(HANG_S)
    if kind in (TIMEOUT, ERROR):
        return web.Response(status=503, text="planted fault")
    if kind == REFUSED:
        return web.Response(status=403, text="planted fault")
    if kind == EMPTY:
        return web.Response(body=empty, headers={"Content-Type": content_type})
    if kind == REDIRECTS:
        return web.Response(status=302, headers={"Location": request.raw_path})
    if kind == GARBLED:
        garbled = body.decode("utf-8", "replace").encode("utf-16-le")
        return web.Response(body=garbled, headers={"Content-Type": content_type})
    response = web.StreamResponse(headers={"Content-Type": content_type})
    await response.prepare(request)
    if kind == HUGE:
        await response.write(body)
        for _ in range(HUGE_BYTES // len(_FILLING)):
            await response.write(_FILLING)
    elif kind == SLOW:
        size = len(body) // DRIPS + 1
        for start in range(0, len(body), size):
            await response.write(body[start : start + size])
            await asyncio.sleep(DRIP_S)
    else:
        await response.write(body[: len(body) // 2])
        if request.transport is not None:
            request.transport.abort()
        return response
    await response.write_eof()
    return response
