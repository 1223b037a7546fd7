"""Identities of power and energy, and what power and time imply of energy."""

import sys

from results.lint.check import AT_MOST, EQUAL, LESS, Check
from results.lint.quantity import Quantity

# Blank, not found, not supported, not permitted: as 64-bit integers, as doubles, as 32-bit ones; NVML: not available.
BLANK_64 = frozenset(
    [float(0x7FFFFFFFFFFFFFF0 + n) for n in range(4)] + [140737488355328.0 + n for n in range(4)] + [float(2**64 - 1)]
)
BLANK_32 = frozenset([float(0x7FFFFFF0 + n) for n in range(4)] + [float(2**32 - 1)])
POWER_SLACK = 1.02  # a GPU may pass its limit for moments: a window's mean by no more than this (sensors are +- 2 %)


def blank(value: float, *, narrow: bool) -> bool:
    """Whether a number is one of the signs for blank of DCGM (dcgm_structs.h) or NVML (nvml.h).

    `narrow`: also those of 32 bits, which a count of bytes or tokens may happen to be.
    """
    return value in BLANK_64 or (narrow and value in BLANK_32)


def not_blank(value: Quantity, what: str, *, narrow: bool = True) -> Check:
    """A reading against what sensors write for no reading."""
    sign = blank(value.value, narrow=narrow)
    return Check(
        identity="not_blank",
        machine=0.0,
        direction=LESS,
        left=Quantity.exact(value.value),
        right=Quantity.exact(value.value if sign else sys.float_info.max),
        left_words=what,
        right_words="a sensor's sign for blank",
        hint="an exporter that hands the sign on as a value",
    )


def power_within_limit(watts: Quantity, limit: Quantity) -> Check:
    """Mean power of a window against 1.02 x the enforced limit."""
    return Check(
        identity="power_within_limit",
        direction=AT_MOST,
        left=watts,
        right=limit.scaled(POWER_SLACK),
        left_words="mean power",
        right_words="1.02 x limit",
        unit="W",
        hint="power of several GPUs, a blank reading, or a limit that was not the enforced one",
    )


def power_utilisation(used: Quantity, watts: Quantity, limit: Quantity, *, slack: float = 0.0) -> Check:
    """Power utilisation against mean power / limit."""
    return Check(
        identity="power_utilisation",
        direction=EQUAL,
        left=used,
        right=watts / limit,
        left_words="power utilisation",
        right_words="mean power / limit",
        unit="ratio",
        slack=slack,
    )


def energy_is_power(
    joules: Quantity, watts: Quantity, gpus: Quantity, seconds: Quantity, *, slack: float = 0.0
) -> Check:
    """Joules of all GPUs against mean watts of one x GPUs x seconds."""
    return Check(
        identity="energy_is_power",
        direction=EQUAL,
        left=joules,
        right=watts * gpus * seconds,
        left_words="joules",
        right_words="watts per GPU x GPUs x s",
        unit="J",
        slack=slack,
        hint="joules of one GPU, or another window",
    )


def energy_ratio(
    used: tuple[Quantity, Quantity], time_ratio: Quantity, gpus: tuple[Quantity, Quantity] | None = None
) -> Quantity:
    """Joules a step after / before, implied by power utilisation (before, after), time after / before and GPUs.

    Joules a step = power utilisation x limit x GPUs x seconds a step: with one limit and, where `gpus` is None, as
    many GPUs, the limit and the GPUs cancel.
    """
    ratio = used[1] / used[0] * time_ratio
    return ratio if gpus is None else ratio * (gpus[1] / gpus[0])


def energy_per_step(stated: Quantity, implied: Quantity, *, slack: float = 0.0) -> Check:
    """The stated ratio of joules a step against `energy_ratio`."""
    return Check(
        identity="energy_per_step",
        direction=EQUAL,
        left=stated,
        right=implied,
        left_words="joules a step, after / before",
        right_words="power utilisation x time of a step, after / before",
        unit="ratio",
        slack=slack,
        hint="another power limit, other GPUs, or idle GPUs left out",
    )
