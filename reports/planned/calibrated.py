"""A calibration in words and tables: its constants, how well generation was fitted, and what it can't see."""

from reports.markdown import escape, number, percent, plural, seconds, table
from results.planner.calibration.constants import MEASURED, Calibration
from results.planner.calibration.laws import PLANNED

_SHOWN = {
    "token_s": "generation, one sequence on an engine",
    "token_s_per_sequence": "generation, per further sequence beside it",
    "agent_s": "agent: neither turn nor tool",
    "train_s": "train",
    "logprob_s": "logprob",
    "host_s": "host: reward, advantage, data, handing over",
    "sync_pause_s": "weight sync: pause",
    "sync_transfer_s": "weight sync: transfer",
    "sync_resume_s": "weight sync: resume",
    "offload_s": "offload",
}


def calibration_page(calibration: Calibration) -> list[str]:
    """The page's lines."""
    of = "fitted to one run" if calibration.source == MEASURED else "from published numbers"
    of = "fitted to one simulated run" if calibration.simulated else of
    told = " (functional check on CPU)" if calibration.device == "cpu" and not calibration.simulated else ""
    lines = [f"# Calibration {of}: {escape(calibration.name)}{told}", ""]
    if calibration.simulated:
        lines += [
            "> Simulated: plans were played without a model. Its constants are of no framework, and no measurement.",
            "",
        ]
    sizes = f"{calibration.batch_size} x {calibration.group_size} trajectories a step"
    where = f"{calibration.framework or 'unnamed framework'}, {calibration.placement}, "
    where += plural(calibration.gpus, "process" if calibration.device == "cpu" else "GPU")
    if calibration.device == "cpu":
        where += ", a CPU run: both pools share the cores"
    lines += [f"{escape(where)}; {sizes}; step {_step(calibration)}.", ""]
    rows = []
    for name, words in _SHOWN.items():
        constant = calibration.constants[name]
        spread = "" if constant.low == constant.high else f"{number(constant.low)} to {number(constant.high)}"
        count = f"{constant.n:,}" if constant.n else ""
        rows.append(
            [
                words,
                number(constant.value),
                constant.unit,
                spread,
                calibration.source_of(constant),
                count,
                escape(constant.note),
            ]
        )
    lines += [*table(["", "value", "unit", "95%", "source", "n", "note"], rows, "lrlrlrl"), ""]
    turns, tools = calibration.turns, calibration.tool_s
    tokens = calibration.turn_tokens
    laws = "as planned (the preset's own)" if calibration.laws == PLANNED else "as seen"
    lines += [
        f"Laws, {laws}: {sum(turns) / len(turns):.2f} turns a trajectory ({min(turns)} to {max(turns)}), "
        f"{sum(tokens) / len(tokens):,.0f} tokens a turn, {seconds(sum(tools) / len(tools))} a tool call.",
        "",
    ]
    fit = calibration.fit
    if fit is not None:
        r2 = "unknown" if fit.r2 is None else f"{fit.r2:.2f}"
        p50 = "unknown" if fit.residual_p50 is None else percent(fit.residual_p50)
        p95 = "unknown" if fit.residual_p95 is None else percent(fit.residual_p95)
        lines += [
            f"Fit of generation: {fit.turns:,} turns with {fit.least:.1f} to {fit.most:.1f} sequences on an engine; "
            f"R² {r2}; a turn is off by {p50} (median), {p95} (95th percentile).",
            "",
        ]
    if calibration.cores:
        used = [f"{percent(one.value)} while {name}" for name, one in calibration.cores.items()]
        lines += [f"Cores in use: {', '.join(used)}. What is in use is not all needed.", ""]
    lines += _mechanisms(calibration)
    lines += ["It can't see:", "", *(f"- {escape(one)}" for one in calibration.unseen), ""]
    return lines


def _mechanisms(calibration: Calibration) -> list[str]:
    """What the adapter says of the weight sync in each placement."""
    told = []
    for placement, one in calibration.mechanisms.items():
        facts = [one.transport] if one.transport else []
        facts += [f"looks for it every {seconds(one.polled_s)}"] if one.polled_s else []
        facts += [f"interrupted turns go on at multiples of {seconds(one.held_s)}"] if one.held_s else []
        facts += ["batches are trained on whole and in order"] if one.whole_batches else []
        if facts:
            told.append(f"- {escape(placement)}: {escape(', '.join(facts))}")
    return ["Weight sync and batches, as the framework is set:", "", *told, ""] if told else []


def _step(calibration: Calibration) -> str:
    return "unknown" if calibration.step_s is None else seconds(calibration.step_s)
