from collections import Counter
from pathlib import Path

import pytest
from sweep_files import COMMON, PAIR, plan_of

from harness.protocol.errors import SpecError
from harness.sweep.plan import Plan


def labels(plan: Plan) -> list[str]:
    return [cell.label for cell in plan.cells]


def test_the_matrix_is_multiplied_out_and_only_what_varies_is_in_a_name(tmp_path: Path) -> None:
    text = COMMON + '[matrix]\nframework = ["simulated"]\nplacement = ["async"]\ngpus = ["1+1", "2+1"]\nseed = [1, 2]\n'
    plan = plan_of(tmp_path, text)
    assert labels(plan) == [f"simulated async gpus={gpus} seed={seed}" for gpus in ("1+1", "2+1") for seed in (1, 2)]
    specs = [cell.spec for cell in plan.cells]
    assert [(str(spec.gpus), spec.seed, spec.steps) for spec in specs if spec] == [
        ("1+1", 1, 4),
        ("1+1", 2, 4),
        ("2+1", 1, 4),
        ("2+1", 2, 4),
    ]


def test_include_adds_and_exclude_takes_away(tmp_path: Path) -> None:
    text = PAIR + (
        'max_staleness = [0, 1, 2]\n[[include]]\nframework = "simulated"\nplacement = "disaggregated"\n'
        '[[exclude]]\nplacement = "colocated"\nmax_staleness = [1, 2]\n'
        '[[exclude]]\nplacement = "async"\nmax_staleness = 0\n'
    )
    assert labels(plan_of(tmp_path, text)) == [
        "simulated colocated max_staleness=0",
        "simulated async max_staleness=1",
        "simulated async max_staleness=2",
        "simulated disaggregated",
    ]


def test_overrides_are_those_of_run_toml(tmp_path: Path) -> None:
    text = (
        '[common]\ndevice = "cpu"\n[matrix]\nframework = "skyrl"\nplacement = "colocated"\n'
        "[overrides.skyrl]\ntrainer.policy.optimizer_config.lr = 1e-6\n"
    )
    (cell,) = plan_of(tmp_path, text).cells
    assert cell.spec is not None
    assert cell.spec.overrides == {"trainer.policy.optimizer_config.lr": "1e-6"}


def test_what_a_placement_cannot_do_is_a_refused_cell_and_takes_no_turn(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, PAIR + "max_staleness = [0, 1]\n", repeats=2)
    refused = {cell.label: cell.refused for cell in plan.cells if cell.refused}
    assert set(refused) == {"simulated colocated max_staleness=1", "simulated async max_staleness=0"}
    assert "allowed is 0 when colocated" in str(refused["simulated colocated max_staleness=1"])
    assert {plan.cells[entry.cell].label for entry in plan.entries} == set(labels(plan)) - set(refused)
    assert len(plan.entries) == 4


def test_rounds_hold_every_cell_once_in_orders_of_their_own(tmp_path: Path) -> None:
    text = PAIR.replace('["colocated", "async"]', '"async"') + "max_staleness = [1, 2, 3, 4, 5, 6]\n"
    plan = plan_of(tmp_path, text, repeats=4)
    rounds = [[entry.cell for entry in plan.entries if entry.round == number] for number in (1, 2, 3, 4)]
    assert all(Counter(cells) == Counter(range(6)) for cells in rounds)
    assert len({tuple(cells) for cells in rounds}) == 4
    assert [entry.number for entry in plan.entries] == list(range(1, 25))
    assert plan.shuffle == 1
    assert plan_of(tmp_path, text, repeats=4) == plan
    other = plan_of(tmp_path, text, repeats=4, shuffle=2)
    assert other.digest != plan.digest
    assert other.entries != plan.entries
    plain = plan_of(tmp_path, text, repeats=2, shuffle=False)
    assert [entry.cell for entry in plain.entries] == [*range(6), *range(6)]
    assert plain.shuffle is None


def test_the_file_may_say_repeats_and_shuffle_and_the_flags_win(tmp_path: Path) -> None:
    text = "repeats = 3\nshuffle = 9\n" + PAIR
    plan = plan_of(tmp_path, text)
    assert (plan.repeats, plan.shuffle) == (3, 9)
    assert plan_of(tmp_path, text, repeats=1, shuffle=False).shuffle is None
    assert plan_of(tmp_path, "shuffle = false\n" + PAIR).shuffle is None


def test_a_plan_survives_its_file_and_a_changed_file_is_refused(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, PAIR + "max_staleness = [0, 1]\n", repeats=2)
    text = plan.to_json(runs_dir="runs")
    again = Plan.from_json(text)
    assert again.digest == plan.digest
    assert [cell.spec for cell in again.cells] == [cell.spec for cell in plan.cells]
    assert again.entries == plan.entries
    with pytest.raises(SpecError, match="changed since"):
        Plan.from_json(text.replace('"steps": 4', '"steps": 5'))
    with pytest.raises(SpecError, match="cannot be read"):
        Plan.from_json(text[: len(text) // 2])


def test_a_cell_asked_for_twice_runs_once(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, PAIR + '[[include]]\nframework = "simulated"\nplacement = "async"\nmax_staleness = 1\n')
    assert len(plan.cells) == 2
    assert any("asked for twice" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PAIR.replace("placement", "placment"), "did you mean placement"),
        (PAIR.replace('"async"', '"asink"'), "allowed is one of"),
        (PAIR.replace('"simulated"', '"simulatd"'), "did you mean simulated"),
        (PAIR + "seed = []\n", "at least one value"),
        (COMMON + '[matrix]\nframework = "simulated"\n', "placement is not given"),
        ("steps = 4\n" + PAIR, r"stand in \[common\]"),
        (PAIR.replace("steps = 4", "steps = [4, 5]"), r"a list of values stands in \[matrix\]"),
        (PAIR + "[[exclude]]\nseed = 7\n", "excludes nothing"),
        (PAIR + '[[exclude]]\nframework = "simulated"\n', "asks for no run"),
        (PAIR + f"seed = {list(range(600))}\n", "at most 1,000"),
        (COMMON, "asks for no run"),
        ("repeats = 0\n" + PAIR, "repeats = 0"),
        ("shuffle = true\n" + PAIR, "shuffle = True"),
        (PAIR + "[overrides.nobody]\na = 1\n", "unknown framework"),
        (PAIR + "batch_size = [2, 4]\n", "must be offered the same work"),
        (PAIR + 'preset = "no-such"\n', "no cell of the sweep can run"),
        ("[matrix\n", "not valid TOML"),
    ],
)
def test_a_wrong_file_is_refused_before_anything_runs(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        plan_of(tmp_path, text)
