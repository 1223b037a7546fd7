"""Each identity as a function of the figures it binds, time, tokens, shares, counts and versions.

Every function is pure and gives a `Check`: both sides with their roundings, and the direction. Those of power and
energy are in `energy_identities`.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from results.lint.check import AT_LEAST, AT_MOST, EQUAL, LESS, Check
from results.lint.quantity import Quantity, total


def tokens_rate(tokens: Quantity, rate: Quantity, gpus: Quantity, seconds: Quantity, *, slack: float = 0.0) -> Check:
    """Tokens against tokens/s/GPU x GPUs x seconds; the GPUs are all of the run's, the rollout side's too."""
    return Check(
        identity="tokens_rate",
        direction=EQUAL,
        left=tokens,
        right=rate * gpus * seconds,
        left_words="tokens",
        right_words="tokens/s/GPU x GPUs x s",
        unit="token",
        slack=slack,
        hint="GPUs left out of the denominator, or a mean of rates in place of a rate of sums",
    )


def rate_per_gpu(whole: Quantity, each: Quantity, gpus: Quantity, *, slack: float = 0.0) -> Check:
    """Tokens/s of the run against tokens/s/GPU x GPUs."""
    return Check(
        identity="rate_per_gpu",
        direction=EQUAL,
        left=whole,
        right=each * gpus,
        left_words="tokens/s",
        right_words="tokens/s/GPU x GPUs",
        unit="token/s",
        slack=slack,
        hint="GPUs left out of the denominator",
    )


def leaves_within_wall(leaves: Sequence[Quantity], wall: Quantity) -> Check:
    """Seconds of the leaves of one unit, none inside another, against its wall time."""
    return Check(
        identity="leaves_within_wall",
        direction=AT_MOST,
        left=total(leaves),
        right=wall,
        left_words=f"sum of {len(leaves)} leaves",
        right_words="wall",
        unit="s",
        hint="leaves that overlap, or a container counted as a leaf",
    )


def phases_within_step(phases: Sequence[Quantity], step: Quantity) -> Check:
    """Seconds of phases that follow each other against the step that holds them."""
    return Check(
        identity="phases_within_step",
        direction=AT_MOST,
        left=total(phases),
        right=step,
        left_words=f"sum of {len(phases)} phases",
        right_words="step",
        unit="s",
        hint="phases that overlap, or one inside another",
    )


def hidden_within_busy(hidden: Quantity, busy: Quantity) -> Check:
    """Seconds of a rollout unit behind a busy train unit against the seconds that the train unit was busy."""
    return Check(
        identity="hidden_within_busy",
        direction=AT_MOST,
        left=hidden,
        right=busy,
        left_words="hidden",
        right_words="train + logprob + host of the train unit",
        unit="s",
    )


def share_in_unit(share: Quantity, what: str, *, most: float = 1.0) -> Check:
    """A share against whichever end of [0, `most`] it is nearer to."""
    above = share.value > most / 2
    return Check(
        identity="share_in_unit",
        direction=AT_MOST if above else AT_LEAST,
        left=share,
        right=Quantity.exact(most if above else 0.0),
        left_words=what,
        right_words="the whole" if above else "nothing",
        unit="ratio",
        hint="a part that is not of this whole, or a per cent read as a ratio",
    )


def shares_within_one(shares: Sequence[Quantity]) -> Check:
    """Shares of one whole against 1."""
    return Check(
        identity="shares_within_one",
        direction=AT_MOST,
        left=total(shares),
        right=Quantity.exact(1.0),
        left_words=f"sum of {len(shares)} shares",
        right_words="the whole",
        unit="ratio",
        hint="shares of different wholes",
    )


def share_of_whole(share: Quantity, part: Quantity, whole: Quantity, what: str, *, slack: float = 0.0) -> Check:
    """A stated share against its part / the whole."""
    return Check(
        identity="share_of_whole",
        direction=EQUAL,
        left=share,
        right=part / whole,
        left_words=f"share of {what}",
        right_words=f"{what} / whole",
        unit="ratio",
        slack=slack,
        hint="a mean of shares in place of a share of sums",
    )


def mfu_below_one(mfu: Quantity, gpu: str | None = None) -> Check:
    """MFU against 1."""
    return Check(
        identity="mfu_below_one",
        direction=LESS,
        left=mfu,
        right=Quantity.exact(1.0),
        left_words="MFU",
        right_words=f"1 on {gpu}" if gpu else "1",
        unit="ratio",
        hint="GPUs left out, or the peak of another GPU",
    )


def flops_below_peak(flops: Quantity, peak: float, gpu: str) -> Check:
    """FLOP/s per GPU against its dense peak."""
    return Check(
        identity="flops_below_peak",
        direction=LESS,
        left=flops,
        right=Quantity.exact(peak),
        left_words="FLOP/s per GPU",
        right_words=f"dense peak of {gpu}",
        unit="FLOP/s",
        hint="FLOP/s of several GPUs, or of another type",
    )


def mfu_of_flops(mfu: Quantity, flops: Quantity, peak: float, gpu: str, *, slack: float = 0.0) -> Check:
    """MFU against FLOP/s per GPU / dense peak."""
    return Check(
        identity="mfu_of_flops",
        direction=EQUAL,
        left=mfu,
        right=flops / Quantity.exact(peak),
        left_words="MFU",
        right_words=f"FLOP/s per GPU / dense peak of {gpu}",
        unit="ratio",
        slack=slack,
        hint="the peak of another GPU or type",
    )


def speed_up(stated: Quantity, before: Quantity, after: Quantity, *, slack: float = 0.0) -> Check:
    """A stated speed-up against time before / time after."""
    return Check(
        identity="speed_up",
        direction=EQUAL,
        left=stated,
        right=before / after,
        left_words="speed-up stated",
        right_words="time before / time after",
        unit="x",
        slack=slack,
        hint="a mean of speed-ups, or times of different work",
    )


def time_reduction(stated: Quantity, before: Quantity, after: Quantity, *, slack: float = 0.0) -> Check:
    """A stated reduction (0.161 is 16.1 % less) against 1 - after / before."""
    return Check(
        identity="time_reduction",
        direction=EQUAL,
        left=stated,
        right=Quantity.exact(1.0) - after / before,
        left_words="reduction stated",
        right_words="1 - time after / time before",
        unit="ratio",
        slack=slack,
        hint="per cent of the time after in place of the time before",
    )


def difference(stated: Quantity, before: Quantity, after: Quantity, what: str, unit: str) -> Check:
    """A stated difference against after - before."""
    return Check(
        identity="difference",
        direction=EQUAL,
        left=stated,
        right=after - before,
        left_words=f"difference of {what} stated",
        right_words="after - before",
        unit=unit,
        hint="per cent of a per cent in place of percentage points",
    )


def staleness_within_bound(staleness: Quantity, bound: Quantity, what: str = "staleness") -> Check:
    """Staleness, in policy versions, against its bound."""
    return Check(
        identity="staleness_within_bound",
        direction=AT_MOST,
        left=staleness,
        right=bound,
        left_words=what,
        right_words="bound",
        unit="version",
        hint="an admission rule is no hard bound: a long straggler can pass it",
    )


def start_before_end(start: Quantity, end: Quantity, unit: str = "s") -> Check:
    """A start against its end."""
    return Check(
        identity="start_before_end",
        machine=0.0,
        direction=AT_MOST,
        left=start,
        right=end,
        left_words="start",
        right_words="end",
        unit=unit,
        hint="two clocks",
    )


def ledger_closes(came: Mapping[str, Quantity], went: Mapping[str, Quantity], unit: str) -> Check:
    """All that came in against all that went somewhere."""
    return Check(
        identity="ledger_closes",
        direction=EQUAL,
        left=total(came.values()),
        right=total(went.values()),
        left_words=" + ".join(came),
        right_words=" + ".join(went),
        unit=unit,
        hint="something dropped that nobody counted, or counted twice",
    )


def ordered(values: Sequence[tuple[str, Quantity]], unit: str = "") -> list[Check]:
    """Each neighbour against the next, of values named in the order they must have."""
    return [
        Check(
            identity="ordered",
            direction=AT_MOST,
            left=low,
            right=high,
            left_words=one,
            right_words=two,
            unit=unit,
            hint="figures of different samples",
        )
        for (one, low), (two, high) in pairwise(values)
    ]


def count_not_negative(count: Quantity, what: str) -> Check:
    """A count against 0."""
    return Check(
        identity="count_not_negative",
        machine=0.0,
        direction=AT_LEAST,
        left=count,
        right=Quantity.exact(0.0),
        left_words=what,
        right_words="nothing",
        hint="a counter that was reset, or an unknown written as -1",
    )


def counts_agree(one: Quantity, two: Quantity, one_words: str, two_words: str, unit: str, slack: float = 0.0) -> Check:
    """One thing that was counted in two ways."""
    return Check(
        identity="counts_agree",
        machine=1e-9,
        direction=EQUAL,
        left=one,
        right=two,
        left_words=one_words,
        right_words=two_words,
        unit=unit,
        slack=slack,
        hint="one of the two counts something else too",
    )


def gpu_hours(stated: Quantity, gpus: Quantity, seconds: Quantity, *, slack: float = 0.0) -> Check:
    """GPU-hours against GPUs x time."""
    return Check(
        identity="gpu_hours",
        direction=EQUAL,
        left=stated,
        right=(gpus * seconds).scaled(1 / 3600),
        left_words="GPU-hours",
        right_words="GPUs x hours",
        unit="GPU h",
        slack=slack,
        hint="only the train side's GPUs",
    )


def steps_time(window: Quantity, steps: Quantity, step: Quantity, *, slack: float = 0.0) -> Check:
    """A window of whole steps, gaps between them inside, against their number x mean time boundary to boundary."""
    return Check(
        identity="steps_time",
        direction=EQUAL,
        left=window,
        right=steps * step,
        left_words="window",
        right_words="steps x time of a step",
        unit="s",
        slack=slack,
        hint="gaps between steps left out, or warm-up steps left in",
    )


def counter_grows(before: Quantity, after: Quantity, what: str, unit: str) -> Check:
    """A reading of a counter against the next one."""
    return Check(
        identity="counter_grows",
        machine=0.0,
        direction=AT_MOST,
        left=before,
        right=after,
        left_words=f"{what}, one reading",
        right_words="the next",
        unit=unit,
        hint="a counter that was reset",
    )


def used_once(times: int, what: str) -> Check:
    """How often a thing that may be used once was used."""
    return Check(
        identity="used_once",
        machine=0.0,
        direction=AT_MOST,
        left=Quantity.exact(float(times)),
        right=Quantity.exact(1.0),
        left_words=f"times that {what} was trained on",
        right_words="1",
        unit="time",
    )
