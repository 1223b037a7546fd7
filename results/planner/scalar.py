"""`draws` for one value at a time, to be compiled: the same operations in the same order, so the same bits."""

import math
from typing import Any

from results.planner.draws import CENTRE, EXP, FAR, LN2_HIGH, LN2_LOW, ODD, TAIL

(C0, C1, C2, C3, C4, C5, C6, C7), (D0, D1, D2, D3, D4, D5, D6, D7) = CENTRE
(E0, E1, E2, E3, E4, E5, E6, E7, E8, E9, E10, E11, E12, E13, E14) = EXP
(O0, O1, O2, O3, O4, O5, O6, O7, O8, O9, O10, O11) = ODD
TAIL_UP, TAIL_DOWN = TAIL
FAR_UP, FAR_DOWN = FAR
ROUNDER = 6755399441055744.0  # 1.5 x 2**52: what is added to it and taken from it again is a whole number


def normals(bits: Any, found: Any) -> None:
    """Standard normal values of 52 random bits each, into `found`."""
    # Two loops, so that the first has no branch and works on several values at once.
    for place in range(len(found)):
        centred = (bits[place] + 0.5) * 2.220446049250313e-16 - 0.5
        r = 0.180625 - centred * centred
        up = ((((((r * C0 + C1) * r + C2) * r + C3) * r + C4) * r + C5) * r + C6) * r + C7
        down = ((((((r * D0 + D1) * r + D2) * r + D3) * r + D4) * r + D5) * r + D6) * r + D7
        found[place] = up / down * centred
    for place in range(len(found)):
        at = (bits[place] + 0.5) * 2.220446049250313e-16
        centred = at - 0.5
        if 0.180625 - centred * centred < 0:
            found[place] = tail(at, centred)


def horner(powers: Any, at: Any) -> Any:
    """A polynomial, highest power first."""
    value = at * powers[0]
    value += powers[1]
    for place in range(2, len(powers)):
        value *= at
        value += powers[place]
    return value


def tail(at: float, centred: float) -> Any:
    """Quantile of the standard normal where |at - 1/2| > 0.425."""
    mantissa, exponent = math.frexp(min(at, 1.0 - at))
    if mantissa < 0.7071067811865476:
        mantissa *= 2.0
        exponent -= 1
    ratio = (mantissa - 1.0) / (mantissa + 1.0)
    rest = horner(ODD, ratio * ratio)
    rest *= ratio * ratio
    rest *= ratio
    depth = math.sqrt(-(exponent * LN2_HIGH + (2.0 * ratio + (rest + exponent * LN2_LOW))))
    if depth > 5.0:
        value = horner(FAR_UP, depth - 5.0) / horner(FAR_DOWN, depth - 5.0)
    else:
        value = horner(TAIL_UP, depth - 1.6) / horner(TAIL_DOWN, depth - 1.6)
    return -value if centred < 0 else value


def exponentials(sigma: float, halves_bits: Any, found: Any) -> None:
    """e to the power of sigma x found, but for a power of two, whose bits go to `halves_bits`."""
    for place in range(len(found)):
        limited = sigma * found[place]
        limited = -700.0 if limited < -700.0 else limited
        limited = 700.0 if limited > 700.0 else limited
        halves = limited * 1.4426950408889634 + ROUNDER - ROUNDER
        x = limited - halves * LN2_HIGH - halves * LN2_LOW
        value = ((((((x * E0 + E1) * x + E2) * x + E3) * x + E4) * x + E5) * x + E6) * x + E7
        value = ((((((value * x + E8) * x + E9) * x + E10) * x + E11) * x + E12) * x + E13) * x + E14
        found[place] = value
        halves_bits[place] = (int(halves) + 1023) << 52
