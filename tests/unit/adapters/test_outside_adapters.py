"""What an adapter of another distribution says of itself reaches every place that asks."""

from dataclasses import replace
from pathlib import Path

import pytest
from outside_packages import install

from adapters.base import ENGINES, Environment, adapter_names, load_adapter
from harness import envs
from harness.cli import call
from harness.protocol.errors import SpecError
from harness.protocol.spec import Device, Placement
from harness.specs import Machine, default_spec, resolve

ENGINE = """
def engines(self, device):
    return ("own-gpu", "vllm") if device is Device.CUDA else ("own-cpu",)
"""
ENVIRONMENTS = """
def engines(self, device):
    return ("own-gpu", "other") if device is Device.CUDA else ("own-cpu",)

def environment(self, device, engine):
    from pathlib import Path
    pins = Path(__file__).with_name("pins.txt")
    return Environment(framework=self.name, device=device, engine=engine, python="3.11", requirements=pins, size_gb=1)
"""
ASKED = ["--framework", "own", "--placement", "async"]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for packages, on the path."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "pins.txt").write_text("torch==2.13.0\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.chdir(tmp_path)
    return folder


def test_its_first_engine_is_the_default_on_each_device(site: Path) -> None:
    install(site, more=ENGINE)
    for device, engine in ((Device.CUDA, "own-gpu"), (Device.CPU, "own-cpu")):
        assert default_spec("own", Placement.ASYNC, device).engine == engine
        asked = {"framework": "own", "placement": "async", "device": device.value}
        assert resolve(asked, machine=Machine()).spec.engine == engine


def test_an_engine_that_it_does_not_name_is_refused(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(site, more=ENGINE)
    assert call(["run", *ASKED, "--device", "cpu", "--engine", "vllm", "--dry-run"]) == 2
    assert "engine = vllm: allowed with own on cpu is own-cpu" in capsys.readouterr().err
    assert call(["run", *ASKED, "--device", "cuda", "--engine", "vllm", "--dry-run"]) == 0


def test_one_that_names_no_engines_has_the_usual_ones(site: Path) -> None:
    install(site)
    assert load_adapter("own").engines(Device.CPU) == ENGINES
    assert default_spec("own", Placement.ASYNC, Device.CPU).engine == ENGINES[0]
    spec = replace(default_spec("own", Placement.ASYNC, Device.CPU), engine="anything")
    assert load_adapter("own").supports(spec) is None  # its own supports is asked, as ever


@pytest.mark.parametrize("told", ["()", "'vllm'", "('',)", "None"])
def test_engines_that_are_no_names_are_its_fault(told: str, site: Path) -> None:
    install(site, more=f"def engines(self, device):\n    return {told}\n")
    with pytest.raises(SpecError, match=r"bench-own 1\.2.*engines.*tuple of names"):
        load_adapter("own")


@pytest.mark.parametrize("name", ["simulated", "skyrl", "areal", "verl"])
@pytest.mark.parametrize("device", list(Device))
def test_the_projects_own_name_their_engines_too(name: str, device: Device) -> None:
    engines = load_adapter(name).engines(device)
    assert engines[0] == default_spec(name, Placement.ASYNC, device).engine
    for engine in engines if name != "simulated" else ():
        assert load_adapter(name).environment(device, engine) is not None
        spec = replace(default_spec(name, Placement.ASYNC, device), engine=engine)
        assert "engine =" not in (load_adapter(name).supports(spec) or "")


def test_environments_of_engines_of_its_own_are_listed(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(site, more=ENVIRONMENTS)
    names = {one.name for one in envs.known_environments()}
    assert {"own-cpu-own-cpu", "own-cuda-own-gpu", "own-cuda-other"} <= names
    assert {"skyrl-cpu-vllm", "verl-cpu-transformers", "areal-cuda-sglang"} <= names
    assert call(["env", "list"]) == 0
    assert "own-cuda-other" in capsys.readouterr().out


@pytest.mark.parametrize(("device", "name"), [("cpu", "own-cpu-own-cpu"), ("cuda", "own-cuda-own-gpu")])
def test_its_environment_is_found_whatever_placements_it_refuses(
    device: str, name: str, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refuses = "def supports(self, spec):\n    return 'pools only' if spec.placement is Placement.COLOCATED else None\n"
    install(site, more=ENVIRONMENTS + refuses)
    assert call(["env", "check", "own", "--device", device]) == 3
    assert f"{name}: it is not built" in capsys.readouterr().err


def test_an_environment_of_a_framework_that_refuses_one_placement_on_gpus_is_found(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(["env", "check", "areal", "--device", "cuda"]) == 3
    assert "areal-cuda-vllm: it is not built" in capsys.readouterr().err
    assert call(["env", "check", "areal", "--device", "cpu", "--engine", "sglang"]) == 2
    assert "engine = sglang" in capsys.readouterr().err


def test_the_variable_that_names_its_python_can_be_set_in_a_shell() -> None:
    one = Environment(framework="own-rl.x", device=Device.CPU, engine="vllm", python="3.11", requirements=Path("p"))
    assert one.python_variable == "BENCH_OWN_RL_X_PYTHON"


def test_one_that_computes_nothing_makes_no_model_and_stays_off_gpus(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install(site, more="computes = False\n")
    gpus = Machine(gpu_memory_bytes=(80 * 2**30,) * 8)
    resolved = resolve({"framework": "own", "placement": "async"}, machine=gpus)
    assert resolved.spec.device is Device.CPU
    assert any("own computes nothing" in note for note in resolved.notes)
    with pytest.raises(SpecError, match=r"own computes nothing.*--device cpu"):
        resolve({"framework": "own", "placement": "async", "device": "cuda"}, machine=gpus)
    assert call(["run", *ASKED, "--model", "random:qwen3-14b", "--dry-run"]) == 0
    assert "to be made once" not in capsys.readouterr().out


def test_one_that_computes_has_its_model_made(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(site)
    assert call(["run", *ASKED, "--model", "random:qwen3-14b", "--dry-run"]) == 0
    assert "to be made once" in capsys.readouterr().out


def test_bench_s_own_adapter_is_kept_where_another_distribution_takes_its_name(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(site, name="skyrl")
    assert load_adapter("skyrl").framework_version == "0.4.0"
    assert adapter_names().count("skyrl") == 1
    assert call(["list", "frameworks"]) == 0
    said = capsys.readouterr()
    assert "bench-skyrl 1.2" in said.err
    assert "bench has one of that name" in said.err
    assert said.out.count("skyrl 0.4.0") == len(Placement) * len(Device)


def test_of_two_distributions_with_one_name_neither_is_taken(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site)
    value = install(site / "more", name="own2", entry="[bench.adapters]\nown = adapter_of_two:ADAPTER\n")
    monkeypatch.syspath_prepend(site / "more")
    assert value
    with pytest.raises(SpecError, match=r"bench-own2? 1\.2.*and.*bench-own2? 1\.2; uninstall all but one"):
        load_adapter("own")
