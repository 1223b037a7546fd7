"""Tables of what came out: straggler wait, throughput, goodput, MFU and the two ledgers."""

from collections.abc import Callable

from reports.markdown import Footnotes, escape, number, percent, table
from results.stats import Estimate
from results.straggler import Straggler
from results.throughput import Ledger, Throughput

Form = Callable[[float], str]


def estimate(found: Estimate, notes: Footnotes, reason: str, form: Form = number) -> list[str]:
    """Three cells: the value, its interval (or the range of its steps, said so), and n."""
    if found.value is None:
        return [notes.unknown(reason), notes.unknown(reason), f"{found.n:,}"]
    if found.ci_low is not None and found.ci_high is not None:
        spread = f"{form(found.ci_low)} to {form(found.ci_high)} (95 %)"
    elif found.low is not None and found.high is not None:
        spread = f"{form(found.low)} to {form(found.high)} (range)"
    else:
        spread = notes.unknown("one step has no range")
    return [form(found.value), spread, f"{found.n:,}"]


def straggler_table(found: Straggler, gpu: bool, notes: Footnotes) -> list[str]:
    """The three numbers, the bound they allow, and the group tail."""
    reason = found.note or "no batch in the window"
    slot = "GPU" if gpu else "process"
    bound = notes.unknown(reason) if found.speed_up_bound is None else f"at most {number(found.speed_up_bound)}x"
    waste = notes.unknown(reason) if found.waste_gpu_s is None else f"{number(found.waste_gpu_s)} {slot} s"
    none = "an exact sum carries no interval"
    rows = [
        ["gap: median to last end, share of the rollout phase", *estimate(found.gap, notes, reason, percent)],
        ["slot loss: share of slots idle until the last end", *estimate(found.slot_loss, notes, reason, percent)],
        ["waste: empty, tool wait and agent inside the tail", waste, _blank(found.waste_gpu_s, notes, none), " "],
        ["speed-up from removing the tail (a bound)", bound, _blank(found.speed_up_bound, notes, none), " "],
        [
            "group tail: median to last end within a group",
            *estimate(found.group_tail, notes, "no group of two or more trajectories was trained on", percent),
        ],
    ]
    lines = table(["Straggler wait", "value", "interval or range", "n"], rows, "l")
    if found.note:
        lines += ["", f"{escape(found.note[0].upper() + found.note[1:])}."]
    return lines


def throughput_table(found: Throughput, gpu: bool, notes: Footnotes) -> list[str]:
    """Rates per second and slot, token counts of the window, and MFU where a GPU has one."""
    slot = "GPU" if gpu else "process"
    rows = [
        [f"throughput, generated tokens / s / {slot}", *estimate(found.tokens, notes, "no step in the window")],
        [f"goodput, tokens / s / {slot}", *estimate(found.goodput, notes, "no step in the window")],
    ]
    lines = table(["Rate", "value", "interval or range", "n"], rows, "l")
    counted = [
        ["generated tokens", _count(found.generated_tokens, notes, "")],
        ["prefilled tokens (sent, cached or not)", _count(found.prefilled_tokens, notes, "a turn has no token count")],
        ["loss tokens", _count(found.loss_tokens, notes, "a step did not record the sum of its loss mask")],
        [
            f"processed tokens (training forward; from {found.processed_source})",
            _count(found.processed_tokens, notes, "the trainer did not record them, nor are all lengths known"),
        ],
        ["good trajectories", f"{found.good_trajectories:,}"],
        ["trained on beyond the bound (not good)", f"{found.stale_trajectories:,}"],
        ["trained on, version unknown (not good)", f"{found.unknown_trajectories:,}"],
    ]
    lines += ["", *table(["In the window", "count"], counted, "l")]
    if gpu:
        why = found.mfu_note or "not known"
        mfu = [
            ["MFU over the window, all GPUs", _ratio(found.mfu, notes, why)],
            ["MFU while training, train GPUs", _ratio(found.mfu_train, notes, why)],
            ["logprob FLOPs beside it", _count(found.logprob_flops, notes, "no logprob forward ran")],
        ]
        lines += ["", *table(["MFU", "value"], mfu, "l")]
    return lines


def ledger_table(tokens: Ledger, trajectories: Ledger) -> list[str]:
    """Both ledgers over the window, side by side, with what does not close."""
    names = {
        "open_at_start": "open at the start",
        "added": "+ generated, or started",
        "trained": "trained on",
        "dropped_stale": "dropped, stale",
        "dropped_other": "dropped, other",
        "failed": "failed",
        "in_flight": "in flight at the end",
        "queued": "queued at the end",
        "gap": "gap (0: the ledger closes)",
    }
    rows = [
        [what, f"{round(getattr(tokens, name)):,}", f"{round(getattr(trajectories, name)):,}"]
        for name, what in names.items()
    ]
    return table(["Ledger of the window", "tokens", "trajectories"], rows, "l")


def _blank(value: float | None, notes: Footnotes, reason: str) -> str:
    return " " if value is None else notes.unknown(reason)


def _count(value: float | None, notes: Footnotes, reason: str) -> str:
    if value is None:
        return notes.unknown(reason)
    return f"{round(value):,}" if abs(value) < 1e15 else number(value)


def _ratio(value: float | None, notes: Footnotes, reason: str) -> str:
    return notes.unknown(reason) if value is None else percent(value)
