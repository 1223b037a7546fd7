"""Fixtures of the environment tests: a cache of their own, and one environment that is built once."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from env_builders import DEMO, QUICK, Built, News, demo_environment, quick_find_python, quick_python, wheel

from adapters.skyrl.environment import CPU_WHEELS
from harness.envs import ensure


def _settle(patch: pytest.MonkeyPatch, cache: Path) -> None:
    """A cache of the test's own, and no index or folder that this machine's pip is told to look in."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        patch.delenv(name)
    patch.setenv("PIP_CONFIG_FILE", os.devnull)
    patch.setenv("BENCH_CACHE", str(cache))
    patch.delenv("BENCH_DEMO_PYTHON", raising=False)


@pytest.fixture(scope="package")
def _quick_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return quick_python(tmp_path_factory.mktemp("quick"))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, _quick_python: Path) -> Path:
    """An empty cache. Builds in it copy a venv made once; the one of `built` makes its own, as users' builds do."""
    monkeypatch.setenv(QUICK, str(_quick_python))
    monkeypatch.setattr("harness.envs.build.find_python", quick_find_python)
    _settle(monkeypatch, tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture
def news() -> News:
    return News()


@pytest.fixture(scope="package")
def _built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    folder = tmp_path_factory.mktemp("built")
    typed = "from typing import TypedDict\nFOUND = TypedDict\n"
    published = (
        wheel("bench-demo", DEMO),
        wheel("skyrl", {"skyrl/__init__.py": "", "skyrl/tinker/__init__.py": "", "skyrl/tinker/types.py": typed}),
        wheel("typing-extensions", {"typing_extensions.py": "TypedDict = 'the other one'\n"}),
    )
    imports = ("bench_demo", "skyrl.tinker.types", "flash_attn.bert_padding")
    environment = demo_environment(folder, published=published, local=CPU_WHEELS, imports=imports)
    with pytest.MonkeyPatch.context() as patch:
        _settle(patch, folder / "cache")
        news = News()
        yield Built(environment, ensure(environment, progress=news), news, folder / "cache")


@pytest.fixture
def built(_built: Built, monkeypatch: pytest.MonkeyPatch) -> Built:
    """An environment with SkyRL's local wheels, built once for all tests, which leave it as it is."""
    _settle(monkeypatch, _built.cache)
    return _built
