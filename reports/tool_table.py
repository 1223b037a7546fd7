"""The tool calls of a run as tables: outcomes by tool, and what each process added to the tools' latencies."""

from reports.markdown import Footnotes, code, escape, number, percent, plural, table
from results.tool_figures import Outcome, ProcessOverhead, Spread, ToolFigures

_NO_SERVER = "no tool server answered these calls"
_NO_PLAN = "no latency was imposed on these calls"
_NOT_MEASURED = "no call has both its whole time and the server's on record"


def tool_section(found: ToolFigures, notes: Footnotes, *, replay: bool = False, cache: str | None = None) -> list[str]:
    """The section's lines, without its heading. `replay`: the calls were answered from a trace. `cache`: what a cache
    had of their answers, in words."""
    if found.why_none is not None:
        return [f"No tool calls: {escape(found.why_none)}."]
    rows = [_outcome(each, notes) for each in found.outcomes]
    header = ["Tool", "status", "calls", "share", "latency p50", "p99", "max", "served p50", "p99", "bytes on the wire"]
    lines = table(header, rows, "ll")
    overhead = [_process(each, notes) for each in found.processes]
    header = ["Process", "calls", "beyond the imposed latency, p50", "p99", "max", "beyond the served time, p50", "p99"]
    lines += ["", "What calls took beyond their tools, in each process that made them:", ""]
    lines += table(header, overhead, "l")
    if cache is not None:
        lines += ["", escape(cache)]
    if replay:
        lines += ["", f"Not in the trace: {found.not_found:,} of {plural(found.calls, 'call')}."]
        if 2 * found.not_found > found.calls:
            lines[-1] += (
                " A replay needs the questions of its recording: the same `--corpus` or `--dataset`, seed and preset."
            )
        lines += _missing(found)
    return lines


def _missing(found: ToolFigures) -> list[str]:
    if not found.not_found_first:
        return []
    return ["", "The first of them:", "", *(f"- {code(tool)} {code(what)}" for tool, what in found.not_found_first)]


def how_many(found: ToolFigures) -> str:
    """What the section's figures were computed from, for its caption."""
    said = f"n = {plural(found.calls, 'call')}, the whole run"
    return said + (f"; {plural(found.cancelled, 'cancelled call')} left out" if found.cancelled else "")


def _outcome(each: Outcome, notes: Footnotes) -> list[str]:
    status = notes.unknown("the call's outcome was not recorded") if each.status is None else escape(each.status)
    size = notes.unknown(_NO_SERVER) if each.wire_bytes is None else number(each.wire_bytes)
    latency = [_ms(value, notes, "no call") for value in _three(each.latency)]
    served = [_ms(value, notes, _NO_SERVER) for value in (each.served.p50_ns, each.served.p99_ns)]
    return [code(each.tool), status, f"{each.calls:,}", percent(each.rate), *latency, *served, size]


def _process(each: ProcessOverhead, notes: Footnotes) -> list[str]:
    planned = [_ms(value, notes, _NO_PLAN) for value in _three(each.beyond_planned)]
    why = _NOT_MEASURED if each.beyond_planned.n == 0 else "their latency was imposed"
    served = [_ms(value, notes, why) for value in (each.beyond_served.p50_ns, each.beyond_served.p99_ns)]
    name = f"{each.role or 'unknown role'} {each.host}-{each.pid}"
    return [escape(name), f"{each.calls:,}", *planned, *served]


def _three(spread: Spread) -> tuple[int | None, int | None, int | None]:
    return spread.p50_ns, spread.p99_ns, spread.max_ns


def _ms(value_ns: int | None, notes: Footnotes, why: str) -> str:
    return notes.unknown(why) if value_ns is None else f"{number(value_ns / 1e6)} ms"
