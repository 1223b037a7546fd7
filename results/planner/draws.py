"""Random numbers by place, not by order: draw `n` of a stream is the same whoever asks, when, and on what machine.

Bits come from Philox 4x64 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"), whose stream NumPy
guarantees; each gives one uniform, and each uniform one value by inversion, so two scenarios of one seed share their
trajectories (common random numbers). Logarithm and exponential are written out in + - * / and square roots, which
IEEE 754 rounds alike everywhere: library versions of them differ between processors in the last bit.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from results.planner.model import Composed, Durations, Empirical, Fixed, Law, LogNormal, Mixture

Floats = npt.NDArray[np.float64]
Bits = npt.NDArray[np.uint64]
Whole = npt.NDArray[np.int64]
Fast = Callable[[Bits, float, float, Floats], None]  # bits, median, sigma, where the values go

BLOCK = 1 << 13  # values worked on at a time: they stay in a core's cache
MOST_KEPT = 4 * BLOCK  # of which the bits are kept for who asks for them again

# Streams of a seed. What is drawn of one never moves another.
GENERATION, TOOL, TURNS, OFFLOAD, LOGPROB, TRAIN, PAUSE, TRANSFER, RESUME = range(9)


def bits(seed: int, stream: int, first: int, count: int) -> Bits:
    """Numbers `first` and up of a stream, 64 random bits each."""
    skip = first % 4
    found: Bits = _philox(seed, stream, first).random_raw(count + skip)[skip:]
    return found


def _philox(seed: int, stream: int, first: int) -> np.random.Philox:
    return np.random.Philox(
        counter=np.array([first // 4, 0, 0, 0], dtype=np.uint64), key=np.array([seed, stream], dtype=np.uint64)
    )


def uniforms(seed: int, stream: int, first: int, count: int) -> Floats:
    """Uniform numbers `first` and up of a stream, each strictly between 0 and 1 (52 bits)."""
    # The half keeps both ends out; with 52 bits it is exact.
    values: Floats = (bits(seed, stream, first, count) >> np.uint64(12)).astype(np.float64)
    values += 0.5
    values *= 2.0**-52
    return values


def seconds(law: Law, seed: int, stream: int, first: int, count: int, fast: Fast | None = None) -> Floats:
    """Values `first` and up of a law's stream, in seconds. `fast`: makes log-normal ones, the same bits."""
    if isinstance(law, Fixed):
        return np.full(count, law.seconds)
    if fast is not None and isinstance(law, LogNormal):
        return _quickly(fast, law, seed, stream, first, count)
    found = uniforms(seed, stream, first, count)
    for begin in range(0, count, BLOCK):
        part = found[begin : begin + BLOCK]
        part[:] = quantiles(law, part)
    return found


def _quickly(fast: Fast, law: LogNormal, seed: int, stream: int, first: int, count: int) -> Floats:
    found = np.empty(count)
    if count <= MOST_KEPT:  # of a short simulation: others of the same seed are likely to follow
        kept = _kept_bits(seed, stream, first, -(-count // BLOCK) * BLOCK)
        fast(kept[:count], law.median_s, law.sigma, found)
        return found
    philox, skip = _philox(seed, stream, first), first % 4
    for begin in range(0, count, BLOCK):  # bits are made a block at a time too: they are still near when they are used
        part = found[begin : begin + BLOCK]
        fast(philox.random_raw(len(part) + skip)[skip:], law.median_s, law.sigma, part)
        skip = 0
    return found


@lru_cache(maxsize=8)
def _kept_bits(seed: int, stream: int, first: int, count: int) -> Bits:
    found = bits(seed, stream, first, count)
    found.setflags(write=False)
    return found


def durations(law: Durations, seed: int, first: int, count: int, fast: Fast | None = None) -> tuple[Whole, Floats]:
    """Of trajectories `first` and up: counts of turns, and seconds of turns and tools in turn (one row each, flat).

    A law alone gives one turn. The rows of `Composed` have 2 x most turns - 1 places, of which a trajectory with
    fewer turns uses the first.
    """
    if not isinstance(law, Composed):
        return _ones(count), seconds(law, seed, GENERATION, first, count, fast)
    counts = np.array(law.turns, dtype=np.int64)
    turns = counts[(uniforms(seed, TURNS, first, count) * len(counts)).astype(np.int64)]
    most = int(counts.max())
    rows = np.empty((count, 2 * most - 1))
    rows[:, 0::2] = seconds(law.generation, seed, GENERATION, first * most, count * most, fast).reshape(count, most)
    if most > 1:
        tools = seconds(law.tool, seed, TOOL, first * most, count * most, fast).reshape(count, most)
        rows[:, 1::2] = tools[:, : most - 1]
    return turns, rows.reshape(-1)


@lru_cache(maxsize=4)
def _ones(count: int) -> Whole:
    """Made once: a large array's first touch costs more than what is done with it."""
    return np.ones(count, dtype=np.int64)


def quantiles(law: Law, at: Floats) -> Floats:
    """The law's quantiles at probabilities within 0 and 1."""
    match law:
        case Fixed():
            return np.full(len(at), law.seconds)
        case LogNormal():
            return law.median_s * exponential(law.sigma * normal_quantiles(at))
        case Empirical():
            values = np.sort(np.array(law.values, dtype=np.float64))
            chosen: Floats = values[(at * len(values)).astype(np.int64)]
            return chosen
        case Mixture():
            return _mixed(law, at)


def _mixed(law: Mixture, at: Floats) -> Floats:
    total = sum(weight for weight, _ in law.parts)
    found = np.empty(len(at))
    low = 0.0
    for number, (weight, part) in enumerate(law.parts):
        share = weight / total
        last = number == len(law.parts) - 1
        mine = (at >= low) if last else (at >= low) & (at < low + share)
        # What is left of the uniform decides within the part.
        rest = np.clip((at[mine] - low) / share, 2.0**-53, 1 - 2.0**-53)
        found[mine] = quantiles(part, rest)
        low += share
    return found


# Wichura 1988, "Algorithm AS 241: the percentage points of the normal distribution", Applied Statistics 37, PPND16:
# relative error about 1e-16. Numerators and denominators, highest power first, for |p - 1/2| <= 0.425, then for
# r = sqrt(-ln(min(p, 1 - p))) up to 5, and above.
CENTRE = (
    (2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457,
     13731.693765509461125, 1971.5909503065514427, 133.14166789178437745, 3.387132872796366608),
    (5226.495278852545925, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867,
     5394.1960214247511077, 687.1870074920579083, 42.313330701600911252, 1.0),
)  # fmt: skip
TAIL = (
    (7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177, 1.27045825245236838258,
     3.64784832476320460504, 5.7694972214606914055, 4.6303378461565452959, 1.42343711074968357734),
    (1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966, 0.14810397642748007459,
     0.68976733498510000455, 1.6763848301838038494, 2.05319162663775882187, 1.0),
)  # fmt: skip
FAR = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 0.0012426609473880784386, 0.026532189526576123093,
     0.29656057182850489123, 1.7848265399172913358, 5.4637849111641143699, 6.6579046435011037772),
    (2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5, 7.868691311456132591e-4,
     0.0148753612908506148525, 0.13692988092273580531, 0.59983220655588793769, 1.0),
)  # fmt: skip


def normal_quantiles(at: Floats) -> Floats:
    """Quantiles of the standard normal at probabilities strictly between 0 and 1."""
    centred = at - 0.5
    argument = centred * centred
    np.subtract(0.180625, argument, out=argument)
    found = _ratio(CENTRE, argument)
    found *= centred
    out = np.flatnonzero(argument < 0)
    if len(out):
        tails, side = at[out], centred[out]
        depth = np.sqrt(-logarithm(np.minimum(tails, 1.0 - tails)))
        far = depth > 5.0
        value = _ratio(TAIL, depth - 1.6)
        if far.any():
            value[far] = _ratio(FAR, depth[far] - 5.0)
        found[out] = np.where(side < 0, -value, value)
    return found


def _ratio(powers: tuple[Sequence[float], Sequence[float]], at: Floats) -> Floats:
    upper = _polynomial(powers[0], at)
    upper /= _polynomial(powers[1], at)
    return upper


def _polynomial(powers: Sequence[float], at: Floats) -> Floats:
    value = at * powers[0]
    value += powers[1]
    for power in powers[2:]:
        value *= at
        value += power
    return value


LN2_HIGH = 6.93147180369123816490e-01  # ends in zeros: a whole number below 2**20 times it is exact
LN2_LOW = 1.90821492927058770002e-10
ODD = tuple(2.0 / (2 * n + 1) for n in range(12, 0, -1))


def logarithm(at: Floats) -> Floats:
    """Natural logarithm of positive, normal doubles, to about one unit in the last place."""
    mantissa, exponent = np.frexp(at)
    low = mantissa < 0.7071067811865476
    mantissa[low] *= 2.0
    exponent[low] -= 1
    ratio = (mantissa - 1.0) / (mantissa + 1.0)
    square = ratio * ratio
    tail = _polynomial(ODD, square)  # of 2 artanh(ratio), all but the first term
    tail *= square
    tail *= ratio
    whole = exponent.astype(np.float64)
    found: Floats = whole * LN2_HIGH + (2.0 * ratio + (tail + whole * LN2_LOW))
    return found


def _inverse_factorials(most: int) -> tuple[float, ...]:
    values, product = [1.0], 1.0
    for n in range(1, most + 1):
        product *= n
        values.append(1.0 / product)
    return tuple(reversed(values))


EXP = _inverse_factorials(14)


def exponential(at: Floats) -> Floats:
    """e to the power of values within -700 to 700 (others are moved there), to about one unit in the last place."""
    limited = np.clip(at, -700.0, 700.0)
    halves = np.rint(limited * 1.4426950408889634)
    rest = limited - halves * LN2_HIGH
    rest -= halves * LN2_LOW
    found = _polynomial(EXP, rest)
    # 2**halves, by its bits.
    power = ((halves.astype(np.int64) + 1023) << 52).view(np.float64)
    found *= power
    return found
