"""Published pages come from committed Parquet: the repository's own do, and one that drifted is found."""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.cli import call
from harness.protocol.errors import SpecError
from reports.markdown import number, percent
from reports.published import SCHEMA, add, read, read_spec, render
from results.metrics import compute
from results.store import load_run

ROOT = Path(__file__).parents[3]
SPEC = """
[[table]]
name = "cells"
file = "page.md"
where = { framework = "simulated" }
rows = ["framework", "placement"]
columns = [
    { title = "adherence", metric = "adherence_ratio", as = "percent" },
    { title = "watts", metric = "power_utilisation_ratio", as = "percent" },
    { title = "train", metric = "phase_share/train", as = "percent" },
    { title = "wall", metric = "wall_s" },
    { title = "work", fact = "work_digest" },
]
"""
PAGE = "# Page\n\nBefore.\n\n<!-- published: cells -->\nold\n<!-- /published: cells -->\n\nAfter.\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "published").mkdir()
    (tmp_path / "published" / "tables.toml").write_text(SPEC)
    (tmp_path / "page.md").write_text(PAGE)
    return tmp_path / "published"


def publish(folder: Path, *arguments: str) -> int:
    return call(["publish", "--folder", str(folder), *arguments])


def test_the_pages_of_this_repository_are_as_published(capsys: pytest.CaptureFixture[str]) -> None:
    assert publish(ROOT / "published", "--check") == 0, capsys.readouterr().err
    assert "results.md" in capsys.readouterr().out


def test_what_is_committed_is_small_and_says_what_it_is() -> None:
    path = ROOT / "published" / "runs.parquet"
    assert path.stat().st_size < 200_000
    table = read(ROOT / "published")
    assert table.num_rows > 100
    assert set(table["device"].to_pylist()) == {"cpu"}
    text = " ".join((ROOT / "docs" / "results.md").read_text().split())
    assert "functional check" in text
    assert "say nothing about how the frameworks compare" in text


@pytest.mark.parametrize("what", ["page", "figures"])
def test_drift_is_found(tmp_path: Path, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A number that was edited by hand, and a figure that was changed without writing the page."""
    for name in ("published", "docs"):
        shutil.copytree(ROOT / name, tmp_path / name)
    folder, page = tmp_path / "published", tmp_path / "docs" / "results.md"
    assert publish(folder, "--check") == 0
    if what == "page":
        page.write_text(page.read_text().replace("2.60 s", "1.60 s"))
    else:
        table = read(folder)
        values = [
            2 * value if name == "step_time_s" and value else value
            for name, value in zip(table["metric"].to_pylist(), table["value"].to_pylist(), strict=True)
        ]
        at = table.schema.get_field_index("value")
        pq.write_table(
            table.set_column(at, table.schema.field(at), pa.array(values, pa.float64())), folder / "runs.parquet"
        )
    text = page.read_text()
    assert publish(folder, "--check") == 1
    assert "differs" in capsys.readouterr().err
    assert page.read_text() == text  # nothing is written by a check
    assert publish(folder) == 0
    assert publish(folder, "--check") == 0


def test_figures_are_those_of_the_runs(place: Path, async_run: Path, colocated_run: Path) -> None:
    assert publish(place, "--add", str(async_run), "--add", str(colocated_run)) == 0
    text = (place.parent / "page.md").read_text()
    assert text.startswith("# Page\n\nBefore.\n\n<!-- published: cells -->\n")
    assert text.endswith("<!-- /published: cells -->\n\nAfter.\n")
    assert "old" not in text
    lines = [line for line in text.splitlines() if line.startswith("| simulated")]
    for folder, line in zip((async_run, colocated_run), lines, strict=True):
        run = load_run(folder)
        found = compute(run)
        share = {row.phase: row.share for row in found.phases}["train"]
        wall = found.figures["wall_s"].value
        assert wall is not None
        cells = [run.spec.framework, run.spec.placement.value, "1", "100.0%", "–", percent(share), number(wall)]
        assert line == "| " + " | ".join([*cells, run.spec.work_digest]) + " |"


def test_again_gives_the_same_bytes_and_a_run_is_not_counted_twice(place: Path, async_run: Path) -> None:
    assert publish(place, "--add", str(async_run)) == 0
    before = (place / "runs.parquet").read_bytes(), (place.parent / "page.md").read_bytes()
    assert publish(place, "--add", str(async_run)) == 0
    assert ((place / "runs.parquet").read_bytes(), (place.parent / "page.md").read_bytes()) == before


def _with_runs(figures: pa.Table, **changes: list[object]) -> pa.Table:
    """The figures of one run, as of several that differ in what is given."""
    count = len(next(iter(changes.values())))
    parts = []
    for n in range(count):
        part = figures
        for name, values in {"run_id": [f"run-{i}" for i in range(count)], **changes}.items():
            at = SCHEMA.get_field_index(name)
            part = part.set_column(at, SCHEMA.field(at), pa.array([values[n]] * len(part), SCHEMA.field(at).type))
        parts.append(part)
    return pa.concat_tables(parts)


def test_of_several_runs_the_median_and_the_range(place: Path, async_run: Path) -> None:
    add(place, [async_run])
    figures = read(place)
    (table,) = read_spec(place)
    walls = figures.filter(pa.compute.equal(figures["metric"], "wall_s"))
    others = figures.filter(pa.compute.not_equal(figures["metric"], "wall_s"))
    several = pa.concat_tables([_with_runs(walls, value=[1.0, 4.0, 2.0]), _with_runs(others, dirty=[True] * 3)])
    (line,) = render(table, several)[2:]
    assert "| 3 |" in line
    assert "| 2 (1 – 4, n = 3) |" in line
    mixed = _with_runs(figures, work_digest=["a", "b"])
    with pytest.raises(SpecError, match="different work"):
        render(table, mixed)


def test_a_run_can_be_taken_out(
    place: Path, async_run: Path, colocated_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add(place, [async_run, colocated_run])
    name = load_run(async_run).run_id
    assert publish(place, "--drop", name) == 0
    assert name not in read(place)["run_id"].to_pylist()
    assert "| colocated |" in (place.parent / "page.md").read_text()
    assert publish(place, "--drop", name) == 2
    assert "not in" in capsys.readouterr().err


def test_what_did_not_finish_is_not_published(place: Path, cut_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (cut_run / "meta.json").write_text((cut_run / "meta.json").read_text().replace('"finished"', '"failed"'))
    assert publish(place, "--add", str(cut_run)) == 2
    assert "only what finished" in capsys.readouterr().err
    assert not (place / "runs.parquet").exists()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('metric = "wall_s"', 'metric = "wall"', "no figure wall"),
        ('fact = "work_digest"', 'fact = "work"', "fact is one of"),
        ('as = "percent"', 'as = "per cent"', "as is one of"),
        ('rows = ["framework"', 'rows = ["colour"', "colour: allowed is one of"),
        ('framework = "simulated"', 'framework = "other"', "no run fits"),
        ('file = "page.md"', 'file = "nothing.md"', "cannot be read"),
        ('name = "cells"', 'name = "cell"', "should have the markers"),
        ("[[table]]", "[[tables]]", "allowed are"),
        ("[[table]]", "[[table]", "tables.toml"),
        ('title = "wall", ', "", "give title"),
    ],
)
def test_a_spec_that_is_wrong_says_where(
    place: Path, async_run: Path, old: str, new: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    add(place, [async_run])
    assert old in SPEC
    (place / "tables.toml").write_text(SPEC.replace(old, new))
    assert publish(place) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.splitlines()) == 1
    assert (place.parent / "page.md").read_text() == PAGE


@pytest.mark.parametrize(
    ("old", "new"),
    [("[[table]]", "[[table]"), ('file = "page.md"', 'file = "nothing.md"'), ('name = "cells"', 'name = "cell"')],
)
def test_figures_without_a_place_for_them_are_not_kept(place: Path, async_run: Path, old: str, new: str) -> None:
    (place / "tables.toml").write_text(SPEC.replace(old, new))
    assert publish(place, "--add", str(async_run)) == 2
    assert not (place / "runs.parquet").exists()


def test_runs_may_be_added_one_by_one(place: Path, async_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "tables.toml").write_text(SPEC.replace('framework = "simulated"', 'placement = "colocated"'))
    assert publish(place, "--add", str(async_run)) == 2
    assert "no run fits" in capsys.readouterr().err
    assert read(place).num_rows


def test_markers_twice_or_turned_round(place: Path, async_run: Path) -> None:
    add(place, [async_run])
    for text in (PAGE * 2, "<!-- /published: cells --> <!-- published: cells -->"):
        (place.parent / "page.md").write_text(text)
        assert publish(place) == 2
        assert (place.parent / "page.md").read_text() == text


def test_a_folder_that_is_not_there_yet(tmp_path: Path, async_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert publish(tmp_path / "new", "--add", str(async_run)) == 2
    err = capsys.readouterr().err
    assert "tables.toml: cannot be read: No such file or directory; " in err
    assert "written" not in err
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").touch()
    assert publish(tmp_path / "file" / "new", "--add", str(async_run)) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_check_writes_nothing_so_it_takes_no_runs(place: Path, async_run: Path) -> None:
    assert publish(place, "--check", "--add", str(async_run)) == 2
    assert not (place / "runs.parquet").exists()
