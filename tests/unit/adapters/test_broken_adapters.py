"""An adapter that can't be used costs only itself: each verb says so in one line, and does the rest."""

from pathlib import Path

import pytest
from outside_packages import install

from adapters.base import load_adapter, load_adapters
from harness.cli import call
from harness.protocol.errors import SpecError
from harness.protocol.spec import Device

# What is wrong with the module or the adapter -> a part of what is said of it.
MODULES = {
    "import no_such_module": "ModuleNotFoundError: No module named 'no_such_module'",
    "raise ValueError('several\\n  lines')": "ValueError: several lines",
    "def (": "SyntaxError",
    "import sys; sys.exit(1)": "SystemExit: 1",
    "OTHER = 1": "AttributeError",
    "class ADAPTER: pass": "is a class, not an instance",
    "ADAPTER = object()": "has no name, framework_version",
}
MEMBERS = {
    "name = 'others'": "calls itself 'others'",
    "verified_on = None": "has verified_on = None: allowed is Mapping",
    "framework_version = 3": "has framework_version = 3: allowed is str",
    "def environment(self, device): return None": "failed in environment: TypeError",
    "def environment(self, device, engine): return 'env'": "has environment = 'env'",
    "def environment(self, device, engine): raise KeyError(engine)": "failed in environment: KeyError: 'vllm'",
    "def engines(self): return ('own',)": "failed in engines: TypeError",
    "computes = 'no'": "has computes = 'no'",
    "phases = property(lambda self: 1 / 0)": "ZeroDivisionError",
    """
def environment(self, device, engine):
    from pathlib import Path
    return Environment(framework="bad", device=device, engine=engine, python="3.11", requirements=Path("/no/pins"))
""": "/no/pins",
}
WAYS = [
    *(pytest.param({"text": text}, said, id=said) for text, said in MODULES.items()),
    *(pytest.param({"more": more}, said, id=said) for more, said in MEMBERS.items()),
    pytest.param({"entry": "[bench.adapters]\nbad = not a reference\n"}, "not a reference", id="reference"),
]
GARBAGE = "[bench.adapters]\nno entry point\n"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for packages, on the path."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr("harness.doctor.ask_pip", lambda python, environment: [])  # asks an index, in seconds
    monkeypatch.chdir(tmp_path)
    return folder


def lines_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if "bench-bad 1.2" in line]


@pytest.mark.parametrize(("how", "said"), WAYS)
def test_list_and_env_list_leave_it_out_and_say_so_in_one_line(
    how: dict[str, str], said: str, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    value = install(site, name="bad", **how)
    for verb in (["list"], ["env", "list"]):
        assert call(verb) == 0
        out, err = capsys.readouterr()
        assert "skyrl" in out
        assert "bad" not in out
        (line,) = lines_of(err)
        assert line.startswith("left out: ")
        assert said in line
        assert value in line or "reference" in line


@pytest.mark.parametrize(("how", "said"), WAYS)
def test_a_run_of_it_ends_with_that_line_and_no_traceback(
    how: dict[str, str], said: str, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(site, name="bad", **how)
    assert call(["run", "--framework", "bad", "--placement", "async", "--device", "cpu", "--dry-run"]) in (2, 3)
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert "defect of bench" not in err
    assert len(lines_of(err)) == 1
    assert len(err.splitlines()) == 1


def test_doctor_shows_it_as_failed_and_checks_the_rest(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(site, name="bad", text="import no_such_module")
    assert call(["doctor"]) == 0
    out = capsys.readouterr().out
    (line,) = lines_of(out)
    assert line.split()[:3] == ["MISSING", "adapter", "bad"]
    assert "No module named 'no_such_module'" in line
    assert "simulated async on cpu" in out
    assert "skyrl async on cuda" in out


@pytest.mark.parametrize("member", ["def supports(self, spec): return spec.no_such_key", "def supports(self): pass"])
def test_one_that_fails_when_it_is_asked_what_it_can_do(
    member: str, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(site, name="bad", more=member)
    for verb in (["list", "frameworks"], ["doctor"]):
        assert call(verb) == 0
        out, err = capsys.readouterr()
        assert "simulated" in out
        assert lines_of(out + err)
        assert "failed in supports" in lines_of(out + err)[0]


def test_one_that_fails_at_the_start_is_named(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(site, name="bad", more="def launch(self, spec, run_dir): return spec.no_such_key")
    assert call(["run", "--framework", "bad", "--placement", "async", "--device", "cpu", "--dry-run"]) == 2
    err = capsys.readouterr().err
    assert "bench-bad 1.2) failed in launch: AttributeError" in err
    assert "outside_adapter_" in err.partition("AttributeError")[2]  # the file and line of it


def test_runs_and_reports_of_others_go_on(site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(site, name="bad", text="import sys; sys.exit(5)")
    flags = ["--framework", "simulated", "--placement", "colocated", "--steps", "3", "--latency-scale", "0.01"]
    assert call(["run", *flags, "--runs-dir", str(tmp_path / "runs")]) == 0
    (run,) = (tmp_path / "runs").iterdir()
    # A report asks the adapter of the run where it was verified: of one that is broken it says that it doesn't know.
    spec = run / "spec.json"
    spec.write_text(spec.read_text().replace('"simulated"', '"bad"', 1))
    capsys.readouterr()
    assert call(["report", str(run)]) == 0
    assert call(["list", "--runs-dir", str(tmp_path / "runs")]) == 0
    out, err = capsys.readouterr()
    assert run.name in out
    assert len(lines_of(err)) == 1


def test_a_list_of_entry_points_that_cannot_be_read_is_named(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(site, name="bad", entry=GARBAGE)
    adapters, broken = load_adapters()
    assert {"simulated", "skyrl", "areal", "verl"} <= {adapter.name for adapter in adapters}
    assert [one.name for one in broken] == ["bench-bad"]
    assert "the entry points of bench-bad 1.2 can't be read" in broken[0].problem
    install(site, name="other", entry="[some.other.group]\nno entry point\n")  # not ours to speak of
    assert [one.name for one in load_adapters()[1]] == ["bench-bad"]


def test_the_error_of_an_adapter_says_where_it_was_raised(site: Path) -> None:
    install(site, name="bad", text="\n\nraise RuntimeError('x' * 1000)\n")
    with pytest.raises(SpecError, match=r"RuntimeError: x{299}… \(.*outside_adapter_\d+\.py:3\)"):
        load_adapter("bad")


def test_cells_of_a_broken_framework_are_the_only_ones_lost(site: Path) -> None:
    install(site, name="bad", text="import no_such_module")
    install(site, name="good")
    adapters, broken = load_adapters()
    assert [one.name for one in broken] == ["bad"]
    assert [adapter.name for adapter in adapters] == ["areal", "good", "simulated", "skyrl", "verl"]
    assert all(adapter.engines(device) for adapter in adapters for device in Device)
    assert all(isinstance(adapter.verified_on, dict) for adapter in adapters)
