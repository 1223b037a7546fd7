"""What a page says of a framework that bench has no adapter of its own for."""

from dataclasses import replace
from pathlib import Path

import played_folders as folders
import played_runs as played
import pytest

from reports.case import Case


@pytest.mark.parametrize(
    ("versions", "said"),
    [
        ({"vllm": "0.30.0", "own-rl": "7", "torch": "2.12.0"}, "own-rl 7, vllm 0.30.0, torch 2.12.0"),
        ({"vllm": "0.30.0", "torch": "2.12.0"}, "own-rl 0.4.0, vllm 0.30.0, torch 2.12.0"),
        ({}, "own-rl 0.4.0"),
    ],
)
def test_its_version_is_named_before_those_of_libraries(versions: dict[str, str], said: str, tmp_path: Path) -> None:
    spec = replace(played.make_spec(steps=4, batch_size=2, group_size=2), framework="own-rl")
    case = Case.load(folders.write_run(tmp_path / "run", spec, versions=versions))
    assert f" · {said} · " in f" · {case.source} · "
