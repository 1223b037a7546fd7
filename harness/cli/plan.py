"""`bench plan`: which placement, split and staleness bound."""

from pathlib import Path

import click

from harness.cli.counted import counted
from harness.cli.output import file_problem, folder_named, writable
from harness.cli.runs import find_run, runs_dir_option
from harness.protocol.errors import SpecError

MOST_STALE = 100  # a bound beyond it bounds nothing that is run, and takes as many updates to warm up


@click.command("plan", short_help="Rank placements, splits and staleness bounds before booking GPUs.")
@click.argument("source", metavar="RUN|CALIBRATION")
@click.option("--gpus", type=int, help="GPUs to place. Default: as many as the calibration's (on CPU: one each).")
@click.option("--max-staleness", "bounds", default="1,2,4", show_default=True, help="Bounds to try in async.")
@click.option("--price-per-gpu-hour", type=float, metavar="PRICE")
@click.option("--price-per-kwh", type=float, metavar="PRICE")
@click.option("--draws", type=int, default=48, show_default=True, help="Draws of what is not known.")
@click.option("--updates", type=int, default=40, show_default=True, help="Updates simulated in each.")
@click.option("--by", type=click.Choice(["goodput", "throughput", "power", "energy", "cost", "step"]),
              help="Rank by this. Default: goodput; on CPU step.")  # fmt: skip
@click.option("--jobs", type=int, help="Processes. Default: as many as cores, where the work is worth it.")
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True)
@click.option(
    "-o", "--out", metavar="DIRECTORY", callback=folder_named, help="Write plan.md, plan.json and the figure."
)
@runs_dir_option
def command(
    source: str,
    gpus: int | None,
    bounds: str,
    price_per_gpu_hour: float | None,
    price_per_kwh: float | None,
    draws: int,
    updates: int,
    by: str | None,
    jobs: int | None,
    seed: int,
    out: Path | None,
    runs_dir: Path,
) -> int:
    """Predict every placement, split and staleness bound from one RUN, or from a CALIBRATION (`bench calibrate -o`).

    Each is simulated over the ranges of what is not known; the page ranks them, draws the front of goodput against
    energy, and says which assumption decides and when async would not pay. Splits whose GPUs can't hold the training
    are left out, with the arithmetic. Nothing in it is measured.
    """
    from harness.cli.fitting import fitting
    from reports.planned.planned import plan_page, write_plan
    from results.planner.calibration.constants import read
    from results.planner.candidates import Candidate, candidates
    from results.planner.plans import plan
    from results.prices import Prices

    prices = Prices(gpu_hour=price_per_gpu_hour, kwh=price_per_kwh).check()
    if Path(source).is_file():
        calibration = read(Path(source))
    else:
        from reports.case import Case
        from results.planner.calibration.from_run import calibrate_run

        case = Case.load(find_run(source, runs_dir))
        calibration = calibrate_run(case.run, case.figures)
    if out is not None:
        writable(out, "name another folder with -o")
    tried = _bounds(bounds)
    if gpus is not None and gpus < 1:
        raise SpecError(f"gpus = {gpus}: allowed is 1 and more")
    left_out: list[str] = []
    if calibration.device == "cpu":
        if prices.given:
            raise SpecError(f"price: {calibration.name} ran on CPU, which has no price per GPU hour; leave it out")
        if gpus is not None:
            raise SpecError(f"gpus = {gpus}: {calibration.name} ran on CPU, and says nothing of GPUs; leave --gpus out")
        one = {"train_gpus": 1, "rollout_gpus": 1}
        apart = [Candidate(placement=placement, **one) for placement in ("colocated", "disaggregated")]
        # What either side takes alone can't be told from a run in which both shared the cores.
        asked = [] if calibration.placement == "async" else apart
        asked += [Candidate(placement="async", **one, max_staleness=bound) for bound in tried]
    else:
        asked = candidates(calibration, gpus or calibration.gpus, tried)
        if not any(one.placement != "colocated" for one in asked):
            left_out.append(
                f"no split of {gpus or calibration.gpus} GPUs leaves whole engines of {calibration.gpus_per_engine}: "
                "only colocated is planned"
            )
        asked, words = fitting(calibration, asked)
        left_out += words
    made = plan(
        calibration,
        asked,
        gpus=gpus or calibration.gpus,
        by=by,
        draws=draws,
        updates=updates,
        seed=seed,
        prices=prices,
        left_out=left_out,
        jobs=jobs,
        progress=counted("simulations"),
    )
    click.echo("\n".join(plan_page(made)))
    if out is not None:
        try:
            paths = write_plan(made, out)
        except OSError as error:
            raise file_problem(error, "the plan can't be written", "name another folder with -o") from None
        click.echo(f"written: {', '.join(str(path) for path in paths)}")
    return 0


def _bounds(text: str) -> tuple[int, ...]:
    try:
        found = tuple(dict.fromkeys(int(word) for word in text.split(",")))
    except ValueError:
        raise SpecError(f"max-staleness = {text}: give whole numbers with commas, e.g. 1,2,4") from None
    if wrong := [bound for bound in found if not 1 <= bound <= MOST_STALE]:
        raise SpecError(f"max-staleness = {wrong[0]}: allowed is 1 to {MOST_STALE} in async")
    return found
