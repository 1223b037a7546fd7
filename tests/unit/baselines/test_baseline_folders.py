"""Baseline folders: who may put runs in, what is used of them, and the folder of a git ref."""

import json
import subprocess
from dataclasses import replace

import pytest

from harness.protocol.errors import SpecError
from results.baselines import ledger
from results.baselines.ledger import ACCEPT, TRUST, Entry
from results.baselines.store import accept, baseline_at, digest_of, read_baseline, withdraw
from results.comparing.kept import read_measures, write_measures
from results.comparing.measures import Value

UTC = "2026-03-09T00:00:00Z"
ANN = {"who": "Ann", "why": "first nights", "utc": UTC}


def test_what_was_accepted_is_read_back(tmp_path, nights):
    runs = [*nights(3), *nights(2, prefix="col", placement="colocated", spec_digest="fedcba9876543210")]
    cells = accept(tmp_path / "b", runs, **ANN)
    assert cells == ["skyrl-async-0123456789ab", "skyrl-colocated-fedcba987654"]
    found = read_baseline(tmp_path / "b")
    assert {run.run_id for run in found.runs} == {run.run_id for run in runs}
    assert {digest_of(run) for run in found.runs} == {digest_of(run) for run in runs}
    assert found.ignored == ()
    assert found.trusted == {"Ann"}
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == [
        "ledger.jsonl",
        "skyrl-async-0123456789ab.parquet",
        "skyrl-colocated-fedcba987654.parquet",
    ]


def test_the_same_run_twice_is_one(tmp_path, nights):
    accept(tmp_path, nights(2), **ANN)
    accept(tmp_path, nights(2), **ANN)
    assert len(read_baseline(tmp_path).runs) == 2


def test_withdrawn_runs_are_gone_and_both_entries_stay(tmp_path, nights):
    runs = nights(2)
    accept(tmp_path, runs, **ANN)
    withdraw(tmp_path, runs[0].run_id, who="Ann", why="the machine was hot", utc=UTC)
    assert [run.run_id for run in read_baseline(tmp_path).runs] == [runs[1].run_id]
    withdraw(tmp_path, runs[1].run_id, who="Ann", why="this too", utc=UTC)
    assert read_baseline(tmp_path).runs == ()
    assert [entry.action for entry in ledger.read(tmp_path)] == ["accept", "accept", "withdraw", "withdraw"]
    with pytest.raises(SpecError, match="is not in"):
        withdraw(tmp_path, runs[1].run_id, who="Ann", why="again", utc=UTC)


def test_a_stranger_may_not_accept_and_nothing_is_written(tmp_path, nights):
    accept(tmp_path, nights(1), **ANN)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(SpecError, match=r"Bob may not change .* trusted are Ann"):
        accept(tmp_path, nights(1, prefix="bobs"), who="Bob", why="mine is better", utc=UTC)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    ledger.append(tmp_path, [Entry(utc=UTC, who="Ann", action=TRUST, what="Bob", why="maintains the runner")])
    accept(tmp_path, nights(1, prefix="bobs"), who="Bob", why="new pins", utc=UTC)
    assert len(read_baseline(tmp_path).runs) == 2


def test_the_last_one_trusted_stays(tmp_path, nights):
    accept(tmp_path, nights(1), **ANN)
    ledger.append(tmp_path, [Entry(utc=UTC, who="Ann", action="distrust", what="Ann", why="leaving")])
    found = read_baseline(tmp_path)
    assert found.trusted == {"Ann"}
    assert "nobody would be left" in found.ignored[0]


def test_what_a_stranger_writes_into_the_files_is_not_used(tmp_path, nights):
    (run,) = nights(1)
    accept(tmp_path, [run], **ANN)
    (stranger,) = nights(1, prefix="bobs")
    (path,) = tmp_path.glob("*.parquet")
    write_measures(path, [*read_measures(path), stranger])
    entry = Entry(utc=UTC, who="Bob", action=ACCEPT, what=stranger.run_id, why="mine", digest=digest_of(stranger))
    with (tmp_path / "ledger.jsonl").open("a") as file:
        file.write(json.dumps({name: getattr(entry, name) for name in Entry.__dataclass_fields__}) + "\n")
    found = read_baseline(tmp_path)
    assert [one.run_id for one in found.runs] == [run.run_id]
    assert any("Bob, who is not trusted" in said for said in found.ignored)


def test_a_number_changed_after_it_was_accepted_is_not_used(tmp_path, nights):
    runs = nights(2)
    accept(tmp_path, runs, **ANN)
    (path,) = tmp_path.glob("*.parquet")
    better = replace(runs[0], values={**runs[0].values, "step_time_s": Value(1.0)})
    write_measures(path, [better, runs[1]])
    found = read_baseline(tmp_path)
    assert [one.run_id for one in found.runs] == [runs[1].run_id]
    assert found.ignored == (f"{runs[0].run_id}: its numbers are not those that Ann accepted",)


def test_a_start_moved_to_another_night_after_it_was_accepted_is_not_used(tmp_path, nights):
    runs = nights(2)
    accept(tmp_path, runs, **ANN)
    (path,) = tmp_path.glob("*.parquet")
    write_measures(path, [replace(runs[0], started_utc="2026-02-01T00:00:00Z"), runs[1]])
    assert [one.run_id for one in read_baseline(tmp_path).runs] == [runs[1].run_id]


def test_a_ledger_whose_last_line_lost_its_end_grows_by_whole_lines(tmp_path, nights):
    accept(tmp_path, nights(1), **ANN)
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    accept(tmp_path, nights(1, prefix="next"), **ANN)
    assert len(ledger.read(tmp_path)) == 2


def test_a_run_that_may_not_be_compared_is_no_baseline(tmp_path, nights):
    bad = replace(nights(1)[0], problems=("did not finish (status killed)",))
    with pytest.raises(SpecError, match="did not finish"):
        accept(tmp_path / "b", [bad], **ANN)
    assert not (tmp_path / "b").exists()
    with pytest.raises(SpecError, match="why: empty"):
        accept(tmp_path / "b", nights(1), who="Ann", why=" ", utc=UTC)


@pytest.mark.parametrize("line", ["{", "[]", '{"utc": 1}', '{"colour": "x"}'])
def test_a_damaged_ledger_names_its_line(tmp_path, nights, line):
    accept(tmp_path, nights(1), **ANN)
    with (tmp_path / "ledger.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(SpecError, match=r"ledger\.jsonl, line 2"):
        read_baseline(tmp_path)


def git(folder, *words):
    identity = ("-c", "user.name=Ann", "-c", "user.email=a@b")
    subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True)


def test_the_baseline_of_a_git_ref(tmp_path, nights):
    git(tmp_path, "init", "-q", "-b", "main")
    accept(tmp_path / "baselines", nights(2), **ANN)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "baseline")
    git(tmp_path, "tag", "v1")
    accept(tmp_path / "baselines", nights(3, prefix="later"), **ANN)
    for where in ("v1", "v1:baselines"):
        with baseline_at(where, tmp_path) as folder:
            assert len(read_baseline(folder).runs) == 2
    with baseline_at(str(tmp_path / "baselines")) as folder:
        assert len(read_baseline(folder).runs) == 5
    for wrong in ("v2", "v1:elsewhere", "--output=x", ":baselines"):
        with pytest.raises(SpecError, match="baseline = "), baseline_at(wrong, tmp_path):
            pass
