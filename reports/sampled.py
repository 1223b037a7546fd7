"""How busy the GPUs were, the errors they told, and what the sampling itself cost."""

from reports.markdown import Footnotes, code, escape, number, percent, plural, seconds, table
from reports.sensed import sensed_part
from results.gpu_errors import Xid
from results.store import RunTables
from results.utilisation import (
    FIELDS,
    Busy,
    PoolUtilisation,
    busy,
    dcgm_notes,
    health,
    sampler_cost,
)
from results.window import Window

_INTERVAL = (
    "±: 95 % interval of what happened between the samples, by the mean square successive difference (von Neumann and "
    "others 1941; Wolter 2007, 8.2)."
)
MOST_XIDS = 8  # shown by number


def busy_part(run: RunTables, window: Window | None, notes: Footnotes, known: Busy | None = None) -> list[str]:
    """The table of utilisation by pool, what is to be said of DCGM, and the GPUs' errors.

    `known`: how busy they were, where that is known already.
    """
    lines: list[str] = []
    found = known if known is not None or window is None else busy(run, window)
    if found is not None and found.utilisation:
        rows = [
            [escape(each.pool), FIELDS[each.field], _mean(each, notes), f"{each.samples:,}"]
            for each in found.utilisation
        ]
        lines += ["", *table(["Pool", "How busy", "mean", "samples"], rows, "lllr")]
        lines += ["", f"That a kernel ran is not how full the GPU was. {_INTERVAL}"]
    if found is not None and found.held_down:
        shares = "; ".join(f"{name} {percent(share)} of the time" for name, share in found.held_down.items())
        lines += ["", f"Clocks were held down by: {shares}."]
    told = dcgm_notes(run)
    if told.notes or told.missing:
        lines += ["", *[f"- {escape(each)}" for each in told.notes]]
    if told.missing:
        names = ", ".join(name.removeprefix("dcgm_").replace("_", " ") for name in told.missing)
        turn_on = " ".join(code(line) for line in told.missing.values())
        lines.append(
            f"- The exporter does not give {names}. Lines for its counters file (`-f`), to turn them on: {turn_on}"
        )
    if errors := _errors(run, window):
        lines += ["", f"GPU errors: {errors}."]
    return lines + sensed_part(run, window)


def cost_line(run: RunTables, notes: Footnotes) -> str:
    """The sampler's own CPU and missed ticks, in one line."""
    cost = sampler_cost(run)
    if cost.core_ratio is None or cost.cpu_s is None:
        return f"The sampler's own cost: {notes.unknown('no sampler told its CPU time')}."
    text = f"The sampler used {percent(cost.core_ratio)} of one core ({number(cost.cpu_s)} CPU s, its start included)"
    if cost.missed is not None:
        share = "" if cost.missed_ratio is None else f" ({percent(cost.missed_ratio)})"
        late = "" if cost.late is None else f", {cost.late:,} of them late by more than half a period,"
        text += f", made {cost.ticks or 0:,} power readings{late} and missed {cost.missed:,} ticks{share}"
    if cost.on_time_ratio is not None:
        text += f": {percent(cost.on_time_ratio)} of the ticks were on time"
    if cost.unended:
        which = plural(cost.unended, "sampler")
        text += f". {which} ended without telling (killed, or still at work): late and missed ticks are not known of it"
    return f"{text}."


def _xid(one: Xid, window: Window | None) -> str:
    when = "" if one.run_s is None else f" {seconds(one.run_s)} into the run"
    if window is not None:
        when += (
            ", in the steady window" if one.within(window.start_ns, window.end_ns) else ", outside the steady window"
        )
    return f"{one.number} on {code(one.gpu) if one.gpu else 'a GPU that the driver did not name'}{when}"


def _mean(each: PoolUtilisation, notes: Footnotes) -> str:
    if each.mean is None:
        return notes.unknown(each.note or "not known")
    return percent(each.mean) + ("" if each.half_width is None else f" ± {100 * each.half_width:.2f} points")


def _errors(run: RunTables, window: Window | None) -> str:
    seen = health(run)
    parts = []
    if seen.xids:
        more = f", and {len(seen.xids) - MOST_XIDS} more" if len(seen.xids) > MOST_XIDS else ""
        told = ", ".join(_xid(one, window) for one in seen.xids[:MOST_XIDS])
        parts.append(f"**{plural(len(seen.xids), 'Xid error')}** ({told}{more})")
    if seen.uncorrected:
        parts.append(f"**{seen.uncorrected:,} uncorrected memory errors**")
    if seen.corrected:
        parts.append(f"{seen.corrected:,} corrected memory errors")
    if seen.returned:
        parts.append(f"{seen.returned} GPUs were lost and came back")
    if seen.appeared:
        parts.append(f"{seen.appeared} GPUs appeared during the run")
    return "; ".join(parts)
