"""`draws` for one value at a time, to be compiled: the same operations in the same order, so the same bits.

The loops have no branch where that can be, so that a processor works on several values at once.
"""

import math
from typing import Any

from results.planner.draws import CENTRE, EXP, FAR, LN2_HIGH, LN2_LOW, ODD, TAIL

(C0, C1, C2, C3, C4, C5, C6, C7), (D0, D1, D2, D3, D4, D5, D6, D7) = CENTRE
(T0, T1, T2, T3, T4, T5, T6, T7), (U0, U1, U2, U3, U4, U5, U6, U7) = TAIL
(E0, E1, E2, E3, E4, E5, E6, E7, E8, E9, E10, E11, E12, E13, E14) = EXP
(O0, O1, O2, O3, O4, O5, O6, O7, O8, O9, O10, O11) = ODD
FAR_UP, FAR_DOWN = FAR
ROUNDER = 6755399441055744.0  # 1.5 x 2**52: what is added to it and taken from it again is a whole number
HALF = 1 << 51
FRACTION = (1 << 52) - 1  # the bits of a double's fraction
HALF_POWER = 1022 << 52  # the bits of 0.5


def normals(bits: Any, found: Any, places: Any, depths: Any, depths_bits: Any, powers: Any) -> None:
    """Standard normal values of 52 random bits each, into `found`.

    Args:
        bits: 0 to 2**52 - 1.
        found: what is made; as long as `bits`.
        places, depths, powers: room to work in, one longer than `bits`.
        depths_bits: `depths`, seen as whole numbers.
    """
    for place in range(len(found)):
        centred = (bits[place] + 0.5) * 2.220446049250313e-16 - 0.5
        r = 0.180625 - centred * centred
        up = ((((((r * C0 + C1) * r + C2) * r + C3) * r + C4) * r + C5) * r + C6) * r + C7
        down = ((((((r * D0 + D1) * r + D2) * r + D3) * r + D4) * r + D5) * r + D6) * r + D7
        found[place] = up / down * centred
    # Those in the tails, some 15 %, once more and side by side.
    count = 0
    for place in range(len(found)):
        at = (bits[place] + 0.5) * 2.220446049250313e-16
        centred = at - 0.5
        places[count] = place
        depths[count] = min(at, 1.0 - at)
        count += 0.180625 - centred * centred < 0
    for one in range(count):  # what frexp does: a fraction from 0.5 to 1, and a power of two
        raw = depths_bits[one]
        powers[one] = (raw >> 52) - 1022.0
        depths_bits[one] = (raw & FRACTION) | HALF_POWER
    deepest = 0.0
    for one in range(count):
        fraction = depths[one]
        low = fraction < 0.7071067811865476
        fraction = fraction * 2.0 if low else fraction
        power = powers[one] - 1.0 if low else powers[one]
        ratio = (fraction - 1.0) / (fraction + 1.0)
        x = ratio * ratio
        rest = ((((((x * O0 + O1) * x + O2) * x + O3) * x + O4) * x + O5) * x + O6) * x + O7
        rest = (((rest * x + O8) * x + O9) * x + O10) * x + O11
        rest *= x
        rest *= ratio
        depth = math.sqrt(-(power * LN2_HIGH + (2.0 * ratio + (rest + power * LN2_LOW))))
        powers[one] = depth
        deepest = max(deepest, depth)
        y = depth - 1.6
        up = ((((((y * T0 + T1) * y + T2) * y + T3) * y + T4) * y + T5) * y + T6) * y + T7
        down = ((((((y * U0 + U1) * y + U2) * y + U3) * y + U4) * y + U5) * y + U6) * y + U7
        depths[one] = up / down
    if deepest > 5.0:  # of 10**11 values a few
        for one in range(count):
            if powers[one] > 5.0:
                depths[one] = horner(FAR_UP, powers[one] - 5.0) / horner(FAR_DOWN, powers[one] - 5.0)
    for one in range(count):
        place = places[one]
        found[place] = -depths[one] if bits[place] < HALF else depths[one]


def horner(powers: Any, at: Any) -> Any:
    """A polynomial, highest power first."""
    value = at * powers[0]
    value += powers[1]
    for place in range(2, len(powers)):
        value *= at
        value += powers[place]
    return value


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
