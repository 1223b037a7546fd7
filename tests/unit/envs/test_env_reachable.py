import os
import sys
from pathlib import Path

import pytest
from env_builders import demo_environment, wheel

from adapters.skyrl.environment import CPU
from harness.envs.reachable import ask_pip, special_pins
from harness.envs.wheels import write_wheel


def test_only_pins_with_a_local_version_are_special() -> None:
    assert "torch==2.13.0+cpu" in special_pins(CPU)
    assert not [pin for pin in special_pins(CPU) if pin.startswith(("vllm==", "flash-attn"))]  # bench makes these


@pytest.mark.parametrize(("version", "found"), [("1.0+cpu", True), ("1.0", False), (None, False)])
def test_pip_is_asked_where_it_would_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str | None, found: bool
) -> None:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    links = tmp_path / "links"
    links.mkdir()
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    if version:
        write_wheel(wheel("bench-special", {}, version), links)
    environment = demo_environment(tmp_path, published=(), extra_pins="bench-special==1.0+cpu\nplain==1.0\n")
    (one,) = ask_pip(Path(sys.executable), environment, limit_s=100)  # a loaded machine is no answer either
    assert (one.pin, one.found) == ("bench-special==1.0+cpu", found)


def test_no_answer_is_not_taken_for_no(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = demo_environment(tmp_path, published=(), extra_pins="bench-special==1.0+cpu\n")
    (gone,) = ask_pip(tmp_path / "python", environment)
    assert (gone.found, "does not start" in gone.why) == (None, True)
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    (late,) = ask_pip(slow, environment, limit_s=0.2)
    assert (late.found, late.why) == (None, "pip gave no answer in 0.2 s")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    monkeypatch.delenv("PIP_NO_INDEX", raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # nobody listens
    (unreached,) = ask_pip(Path(sys.executable), environment)
    assert unreached.found is None, unreached
