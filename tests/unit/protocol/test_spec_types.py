"""A spec.json whose values are of other types than their fields': an error in one line that names the field."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from protocol_specs import SPEC as PLAIN

from harness.protocol.errors import SpecError
from harness.protocol.spec import RunSpec

SPEC = replace(PLAIN, overrides={"a": "1"}, faults=("x",), record="calls.jsonl")
RAW: dict[str, Any] = json.loads(SPEC.to_json())
FIELDS = [name for name in RAW if not name.endswith(("work_digest", "spec_digest"))]


def test_what_was_written_is_read() -> None:
    assert RunSpec.from_json(json.dumps(RAW)) == SPEC


@pytest.mark.parametrize("name", FIELDS)
def test_a_value_of_another_type(name: str) -> None:
    text = isinstance(RAW[name], str)
    for odd in ({"a": 1}, [["x"]], 3 if text else "x", -1, 10**40, float("nan"), 1e400, "\ud800"):
        with pytest.raises(SpecError, match=r"^spec\.json cannot be read: [^\n]+$"):
            RunSpec.from_json(json.dumps({**RAW, name: odd}))


@pytest.mark.parametrize("odd", ["x", None, True, -1, 1.5, 10**7, [1]])
def test_a_number_of_gpus_that_is_none(odd: object) -> None:
    with pytest.raises(SpecError, match=r"spec\.json cannot be read: train = "):
        RunSpec.from_json(json.dumps({**RAW, "gpus": {"train": odd, "rollout": 1}}))


@pytest.mark.parametrize("text", ["[" * 100_000, "[]", "3", "null", '"x"', "{"])
def test_a_file_that_holds_no_object(text: str) -> None:
    with pytest.raises(SpecError, match=r"spec\.json cannot be read: "):
        RunSpec.from_json(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "it holds a list, and no settings by name"),
        ("null", "it holds nothing, and no settings by name"),
        ('"x"', "it holds a text, and no settings by name"),
        ("{}", "it lacks framework, placement, workload, preset and 19 more"),
        ("{", "it is no JSON"),
        ("", "it is empty"),
        ("[" * 100_000, "it is no JSON"),
        (json.dumps({**RAW, "new": 1, "newer": 2}), "it has settings that this bench does not know: new, newer"),
        (json.dumps({k: v for k, v in RAW.items() if k != "seed"}), "it lacks seed"),
        (json.dumps({**RAW, "gpus": {"train": 1}}), "gpus = {'train': 1}: "),
        (json.dumps({**RAW, "gpus": 3}), "gpus = 3: "),
        (json.dumps({**RAW, "device": "tpu"}), "device = 'tpu': allowed is one of cuda, cpu"),
    ],
)
def test_a_damaged_file_is_told_in_words_with_its_path_once(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as error:
        RunSpec.load_file(path)
    told = str(error.value)
    assert told.startswith(f"{path} cannot be read: {said}")
    assert told.count("spec.json") == 1
    assert "; " in told.removeprefix(f"{path} cannot be read: {said}")  # what to do
    assert "\n" not in told


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_bytes(b"\xff\xfe{")
    with pytest.raises(SpecError, match=r"spec\.json cannot be read: it is no text in UTF-8; "):
        RunSpec.load_file(path)


def test_a_file_that_is_missing_is_named_once(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as error:
        RunSpec.load_file(tmp_path / "spec.json")
    assert str(error.value) == f"{tmp_path / 'spec.json'} cannot be read: No such file or directory"
