"""Series of nights: steps are found where they are, noise alone is none, and the commits between are named."""

import subprocess
from dataclasses import replace

import numpy as np
import pytest

from harness.protocol.errors import SpecError
from reports.histories import draw, write_history
from results.baselines import history
from results.baselines.check import cell_name
from results.comparing.measures import Value


def found_in(runs, name="step_time_s"):
    return history.series(cell_name(runs[0]), runs, name)


def test_a_step_is_found_between_its_two_nights(nights):
    runs = [*nights(12), *nights(12, first=12, seed=2, prefix="later", factors={"step_time_s": 1.12})]
    made = found_in(runs)
    (change,) = made.changes
    assert (change.after.commits, change.before.commits) == (("c011",), ("c012",))
    assert change.worse is True
    assert change.contrast.estimate == pytest.approx(1.12, rel=0.02)
    assert found_in(runs, "phase_train_s").changes == ()


def test_two_steps_up_and_down(nights):
    runs = [
        *nights(10),
        *nights(10, first=10, seed=2, prefix="b", factors={"goodput_tokens_per_s_gpu": 0.85}),
        *nights(10, first=20, seed=3, prefix="c"),
    ]
    changes = found_in(runs, "goodput_tokens_per_s_gpu").changes
    assert [(change.before.commits[0], change.worse) for change in changes] == [("c010", True), ("c020", False)]


def test_noise_alone_is_no_change(nights):
    seen = sum(len(found_in(nights(30, seed=seed, noise=0.03)).changes) for seed in range(200))
    assert seen <= 2


def test_runs_of_one_evening_are_one_point(nights):
    made = found_in(nights(12, each=3))
    assert [len(point.runs) for point in made.points] == [3] * 4
    logs = np.log([run.value("step_time_s") for run in nights(12, each=3)[:3]])
    assert made.points[0].value == pytest.approx(float(np.exp(logs.mean())))


def test_a_short_series_says_so(nights):
    made = found_in(nights(3))
    assert made.changes == ()
    assert "3 occasion(s)" in made.why
    assert "0 occasion(s)" in found_in(nights(6), "mfu_ratio").why


def test_a_new_machine_is_named_beside_the_commits(tmp_path, nights):
    later = nights(10, first=10, prefix="b", seed=4, factors={"step_time_s": 1.3})
    later = [replace(run, machine={**run.machine, "cpu": "another"}) for run in later]
    made = found_in([*nights(10), *later])
    page = write_history({made.cell: [made]}, tmp_path, None).read_text()
    assert "`c009..c010`; machine c, 2 to another, 2 |" in page


def test_nights_whose_goodput_fell_to_nothing_are_said(tmp_path, nights):
    none = [replace(run, values={"goodput_tokens_per_s_gpu": Value(0.0)}) for run in nights(4, first=10, prefix="z")]
    made = found_in([*nights(10), *none], "goodput_tokens_per_s_gpu")
    assert made.without == tuple(run.run_id for run in none)
    page = write_history({made.cell: [made]}, tmp_path, None).read_text()
    assert "goodput\\_tokens\\_per\\_s\\_gpu: 4 runs" in page


@pytest.mark.parametrize("fails", ["while cells are drawn", "while the page is written"])
def test_a_page_that_fails_leaves_no_picture_beside_an_earlier_one(tmp_path, nights, monkeypatch, fails):
    def there():
        return {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def stop(*_, **__):
        assert list(tmp_path.rglob("history-a*.png"))  # it was drawn before
        raise OSError("no space left")

    write_history({"a": [found_in(nights(8))]}, tmp_path, None)
    before = there()
    assert set(before) == {"history.md", "history-a.png", "history-a.svg"}
    cells = {"a": [found_in(nights(12))], "b": [found_in(nights(12))]}
    if fails == "while the page is written":
        monkeypatch.setattr(type(tmp_path), "write_text", stop)
    with pytest.raises(OSError, match="no space left"):
        write_history(cells, tmp_path, None, stop if fails == "while cells are drawn" else None)
    assert there() == before
    monkeypatch.undo()
    write_history(cells, tmp_path, None)
    assert {name for name in there() if before.get(name) != there()[name]} == set(there())
    assert "history-b.png" in there()


def test_series_on_disk_grow_and_take_a_run_once(tmp_path, nights):
    assert history.add(tmp_path / "h", nights(2)) == 2
    assert history.add(tmp_path / "h", [*nights(2), *nights(1, first=5, prefix="new")]) == 1
    (runs,) = history.load(tmp_path / "h").values()
    assert len(runs) == 3
    with pytest.raises(SpecError, match="no usable run of verl"):
        history.load(tmp_path / "h", "verl")
    with pytest.raises(SpecError, match="no such folder"):
        history.load(tmp_path / "none")


def test_the_page_names_the_commits_between(tmp_path, nights):
    repository = tmp_path / "repository"
    repository.mkdir()

    def git(*words):
        command = ["git", "-C", str(repository), "-c", "user.name=A", "-c", "user.email=a@b", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    names = []
    for text in ("old", "Make <b>sync</b> | slower", "also this"):
        git("commit", "-q", "--allow-empty", "-m", text)
        names.append(git("rev-parse", "--short=12", "HEAD"))
    runs = [
        *nights(8, commit=names[0]),
        *nights(8, first=8, seed=2, prefix="b", factors={"phase_train_s": 1.2}, commit=names[2]),
    ]
    cell = cell_name(runs[0])
    page = write_history({cell: [found_in(runs, "phase_train_s")]}, tmp_path / "out", repository).read_text()
    assert f"`{names[0]}..{names[2]}`, 2 commits:" in page
    assert "Make &lt;b&gt;sync&lt;/b&gt; \\| slower" in page
    assert "**worse**" in page
    assert (tmp_path / "out" / f"history-{cell}.png").stat().st_size > 10_000
    elsewhere = write_history({cell: [found_in(runs, "phase_train_s")]}, tmp_path / "out2", tmp_path).read_text()
    assert "are not in the repository at hand" in elsewhere
    option = f"--output={tmp_path}/written"
    runs = [replace(run, commit=option if run.commit == names[0] else run.commit) for run in runs]
    write_history({cell: [found_in(runs, "phase_train_s")]}, tmp_path / "out3", repository)
    assert not list(tmp_path.glob("written*"))


def test_the_page_says_what_was_looked_at_and_what_the_runs_were(tmp_path, nights):
    told = []
    runs = [replace(run, device="cuda") for run in nights(8)]
    of = [found_in(runs), found_in(runs[:3], "phase_train_s")]
    page = write_history({"cell": of}, tmp_path, None, lambda *at: told.append(at)).read_text()
    assert told == [(1, 1)]
    assert "No change found in step\\_time\\_s." in page
    assert "takes nights as independent" in page
    assert "autocorrelation" in page
    assert page.startswith("# Nights in a row\n")
    for changes, label in (
        ({"framework": "simulated", "device": "cpu"}, "simulated"),
        ({"framework": "verl", "device": "cpu"}, "functional check on CPU"),
    ):
        marked = found_in([replace(run, **changes) for run in runs])
        page = write_history({"cell": [marked]}, tmp_path, None).read_text()
        assert page.startswith(f"# Nights in a row ({label})\n")
        assert f"## cell ({label})" in page
        assert label in draw("cell", [marked])._suptitle.get_text()


def test_one_night_is_no_picture(tmp_path, nights):
    page = write_history({"cell": [found_in(nights(1))]}, tmp_path, None).read_text()
    assert "Too few occasions" in page
    assert not list(tmp_path.glob("*.png"))
    write_history({"cell": [found_in(nights(2))]}, tmp_path, None)
    assert list(tmp_path.glob("*.png"))


@pytest.mark.parametrize(("correlation", "least", "most"), [(0.3, 0.08, 0.26), (0.6, 0.4, 0.7)])
def test_nights_like_the_night_before_change_as_often_as_the_page_says(nights, correlation, least, most):
    seen, count = 0, 80
    for seed in range(count):
        random = np.random.default_rng(seed)
        drift = [random.normal()]
        for _ in range(29):
            drift.append(correlation * drift[-1] + random.normal() * (1 - correlation**2) ** 0.5)
        runs = [
            replace(run, values={**run.values, "step_time_s": Value(10 * float(np.exp(0.03 * each)))})
            for run, each in zip(nights(30), drift, strict=True)
        ]
        seen += bool(found_in(runs).changes)
    assert least <= seen / count <= most
