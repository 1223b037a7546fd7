"""Whether a run was alone, in words: what results.contamination found, and what it could not tell."""

from harness.protocol.spec import Device
from reports.markdown import Footnotes, escape, number, plural
from results.contamination import CHECKS, Contamination


def contamination_line(found: Contamination, device: Device, notes: Footnotes) -> str:
    """The verdict in words."""
    if found.reasons:
        text = f"**contaminated**: {escape('; '.join(found.reasons))}"
    elif found.looked_at or (device is Device.CPU and found.load_ratio is not None):
        text = "none seen"
    else:
        return notes.unknown("the sampler recorded no check for foreign processes, limits, clocks or load")
    told = []
    if found.looked_at:
        clean = ", ".join(clean for clean, _ in CHECKS.values())
        told.append(f"{clean}: {plural(found.looked_at, 'GPU')} looked at")
    if found.load_ratio is not None and not found.busy_host:
        told.append(f"load before the launch {number(found.load_ratio)} per core")
    if found.unknown_words:
        told.append(f"could not tell: {', '.join(found.unknown_words)}")
    return f"{text} ({escape('; '.join(told))})" if told else text
