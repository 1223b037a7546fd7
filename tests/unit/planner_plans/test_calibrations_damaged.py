"""Calibration files with wrong values: each is said with its key and what is allowed, before anything is simulated."""

import json
import re
from dataclasses import asdict, fields, replace

import pytest
from plans_by_hand import calibrated, constant

from harness.cli import call
from harness.protocol.errors import SpecError
from results.planner.calibration.constants import FORMAT, Calibration, Mechanism, read

WRONG = ["zzz", "", ["zzz"], [], {}, {"zzz": "zzz"}, None, True, -1, 0.5, 10**30, float("nan"), "\ud800"]
TEXTS = {"name", "framework", "model", "work_digest"}  # any text is one
PYTHON = re.compile(
    r"'\w+' object|argument|not supported|__|NoneType|Traceback|defect|Python|\bdict\b|\bstr\b|\btuple\b"
)


def whole():
    """With every key."""
    made = calibrated(
        watts_limit=700.0,
        watts={"idle": 70.0},
        power_ratio=0.3,
        step_s=400.0,
        gpu_bytes=2**36,
        work={"preset": "reference"},
        unseen=("the rest",),
        cores={"train": constant(0.5, unit="1")},
        contention=constant(0.5, unit="1"),
        mechanisms={"async": Mechanism(transport="NCCL")},
    )
    # What a file holds, and small: it is simulated below.
    return {"format": FORMAT, **json.loads(json.dumps(asdict(replace(made, batch_size=2, group_size=2))))}


def paths(held, before=()):
    """Of every value of the file."""
    found = []
    for name, value in held.items() if isinstance(held, dict) else enumerate(held[:1]):
        found.append((*before, name))
        if isinstance(value, dict | list):
            found += paths(value, (*before, name))
    return found


def damaged(path, value):
    held = whole()
    inner = held
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return json.dumps(held)


def key_of(path):
    return "".join(f"[{name}]" if isinstance(name, int) else f".{name}" for name in path).removeprefix(".")


EVERY = [path for path in paths(whole()) if path != ("format",)]


def test_every_key_is_in_the_file():
    assert {path[0] for path in EVERY} == {one.name for one in fields(Calibration)}


@pytest.mark.parametrize("path", EVERY, ids=key_of)
def test_a_wrong_value_is_said_with_its_key(tmp_path, path):
    said = {}
    for value in WRONG:
        file = tmp_path / "c.json"
        file.write_text(damaged(path, value))
        try:
            read(file)
        except SpecError as error:
            said[repr(value)] = str(error)
    for value, words in said.items():
        outside = "outside its range" in words  # which end is wrong can't be told: the constant is named
        assert words.startswith(f"{tmp_path / 'c.json'}: {key_of(path[:-1] if outside else path)}"), (value, words)
        assert any(word in words for word in ("allowed", "missing", "unknown", "outside")), words
        assert not PYTHON.search(words.removeprefix(str(tmp_path))), words
    assert len(said) >= len(WRONG) - 4  # texts allow two of them, tables of texts two, numbers three


@pytest.mark.parametrize("path", [path for path in EVERY if len(path) == 1], ids=key_of)
@pytest.mark.parametrize("value", ["zzz", ["zzz"], None, -1, {}, []], ids=json.dumps)
def test_a_plan_is_made_or_refused(tmp_path, capsys, path, value):
    file = tmp_path / "c.json"
    file.write_text(damaged(path, value))
    code = call(["plan", str(file), "--gpus", "8", "--max-staleness", "1", "--draws", "2", "--updates", "10"])
    said = capsys.readouterr().err
    assert code in (0, 2), said
    if isinstance(value, str):
        assert code == (0 if path[0] in TEXTS else 2), said
    assert not PYTHON.search(said), said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda held: held.pop("batch_size"), "batch_size: it is missing"),
        (lambda held: held["constants"].pop("token_s"), "constants.token_s: it is missing"),
        (lambda held: held["constants"]["token_s"].pop("low"), "constants.token_s.low: it is missing"),
        (lambda held: held.update(colour=1), "colour: unknown; known are source,"),
        (lambda held: held["fit"].update(colour=1), "fit.colour: unknown; known are turns,"),
        (lambda held: held["constants"]["token_s"].update(low=1.0), "constants.token_s: a constant of 0.02 outside"),
    ],
)
def test_what_is_missing_or_unknown_is_said(tmp_path, change, said):
    held, file = whole(), tmp_path / "c.json"
    change(held)
    file.write_text(json.dumps(held))
    with pytest.raises(SpecError) as caught:
        read(file)
    assert str(caught.value).startswith(f"{file}: {said}")


@pytest.mark.parametrize("text", ["[" * 100_000, "\ufeff{}", '{"format": true}', '{"format": [1]}'])
def test_what_is_no_calibration_at_all_is_said(tmp_path, text):
    file = tmp_path / "c.json"
    file.write_text(text)
    with pytest.raises(SpecError, match="no calibration"):
        read(file)
