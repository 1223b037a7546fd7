from dataclasses import replace
from pathlib import Path

import pytest
from env_builders import demo_environment, wheel

from adapters.skyrl.environment import CPU, CUDA, environment
from harness.envs.build import differences
from harness.envs.pins import digest, read_pins
from harness.protocol.errors import EnvError
from harness.protocol.spec import Device


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_pins_are_read_with_options_comments_and_urls(tmp_path: Path) -> None:
    text = "# top\n--no-index\nA_b.C==1.0+cpu  # why\n\nray[default]==2.57.0 ; sys_platform == 'linux'\nx @ https://h/x#sha\n"
    pins = read_pins(write(tmp_path / "r.txt", text))
    assert [(pin.name, pin.version) for pin in pins] == [("a-b-c", "1.0+cpu"), ("ray", "2.57.0"), ("x", None)]


@pytest.mark.parametrize("line", ["torch", "torch>=2", "torch~=2.0", "./local.whl"])
def test_a_line_that_is_no_full_pin_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(EnvError, match="no full pin"):
        read_pins(write(tmp_path / "r.txt", f"numpy==1.0\n{line}\n"))


def test_missing_requirements_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(EnvError, match=r"gone\.txt"):
        read_pins(tmp_path / "gone.txt")


def test_the_digest_is_of_what_gets_installed(tmp_path: Path) -> None:
    base = demo_environment(tmp_path, local=(wheel("stub", {"stub.py": "A = 1\n"}),))
    key = digest(base)
    base.requirements.write_text("# another comment\n" + base.requirements.read_text(), encoding="utf-8")
    assert digest(base) == key
    assert digest(replace(base, size_gb=9.0, minutes=9.0, status="x", imports=())) == key
    others = [
        replace(base, python="3.99"),
        replace(base, pip_arguments=("--ignore-requires-python",)),
        replace(base, local_wheels=(wheel("stub", {"stub.py": "A = 2\n"}),)),
        replace(base, local_wheels=(wheel("stub", {"stub.py": "A = 1\n"}, "2.0"),)),
        replace(base, requirements=write(tmp_path / "other.txt", base.requirements.read_text() + "more==1\n")),
    ]
    assert len({key, *map(digest, others)}) == len(others) + 1


def test_differences_follow_pips_rule_for_local_versions() -> None:
    wanted: dict[str, str | None] = {"a": "1.0", "b": "1.0+cpu", "c": None, "d": "1", "e": "2"}
    installed = {"a": "1.0+cu130", "b": "1.0", "c": "7", "e": "3"}
    assert differences(wanted, installed) == ["b is 1.0, not 1.0+cpu", "d is not installed", "e is 3, not 2"]


@pytest.mark.parametrize("declared", [CPU, CUDA], ids=lambda declared: declared.name)
def test_skyrl_pins_are_full_and_unique(declared) -> None:
    pins = read_pins(declared.requirements)
    names = [pin.name for pin in pins] + [wheel.name for wheel in declared.local_wheels]
    assert len(set(names)) == len(names) > 100
    versions = {pin.name: pin.version for pin in pins}
    assert versions["skyrl"] == versions["skyrl-gym"] == "0.4.0"
    assert versions["vllm-router"] == "0.1.14"  # 0.1.15 removed an argument that skyrl 0.4.0 passes
    assert versions["ray"] == "2.57.0"


def test_skyrl_has_one_environment_per_device() -> None:
    assert environment(Device.CPU) is CPU
    assert environment(Device.CUDA, "vllm") is CUDA
    assert environment(Device.CUDA, "sglang") is None
    assert CUDA.status == "resolved, not installed here"
