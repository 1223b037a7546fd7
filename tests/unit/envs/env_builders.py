"""Small environments for the tests: made of local wheels, built offline in seconds."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from adapters.base import Environment, LocalWheel
from harness.envs import BuildProgress
from harness.envs.wheels import write_wheel
from harness.protocol.spec import Device

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
QUICK = "BENCH_TEST_QUICK_PYTHON"
DEMO = {"bench_demo/__init__.py": "VALUE = 41\n", "bench_demo/extra.py": "MORE = 1\n"}


def wheel(name: str, files: Mapping[str, str], version: str = "1.0") -> LocalWheel:
    return LocalWheel(name=name, version=version, why="a test's", files=files)


def demo_environment(
    folder: Path,
    *,
    published: tuple[LocalWheel, ...] = (wheel("bench-demo", DEMO),),
    local: tuple[LocalWheel, ...] = (),
    imports: tuple[str, ...] = ("bench_demo",),
    extra_pins: str = "",
    size_gb: float = 0.001,
) -> Environment:
    """An environment that pins the `published` wheels, which lie in a folder that pip is told to look in."""
    links = folder / "links"
    links.mkdir(parents=True, exist_ok=True)
    for one in published:
        write_wheel(one, links)
    pins = "".join(f"{one.name}=={one.version}\n" for one in published)
    requirements = folder / "requirements.txt"
    requirements.write_text(f"# a test's\n--no-index\n--find-links {links}\n{pins}{extra_pins}", encoding="utf-8")
    return Environment(
        framework="demo",
        device=Device.CPU,
        engine="vllm",
        python=PYTHON,
        requirements=requirements,
        local_wheels=local,
        size_gb=size_gb,
        minutes=0.1,
        status="a test's",
        imports=imports,
    )


def quick_python(folder: Path) -> Path:
    """An interpreter whose `-m venv` copies a venv made once: ensurepip alone takes 4 s."""
    template = folder / "template"
    subprocess.run([sys.executable, "-m", "venv", template], check=True)
    script = folder / "python"
    # Called as: python -I tied.py PID venv FOLDER
    script.write_text(
        f'#!/bin/sh\nif [ "$4" = venv ]; then exec cp -a {template} "$5"; fi\nexec {sys.executable} "$@"\n',
        encoding="utf-8",
    )
    script.chmod(0o755)
    return script


def quick_find_python(version: str) -> Path:
    """Stands for `find_python`, in this process and in those that the tests start."""
    assert version == PYTHON
    return Path(os.environ[QUICK])


@dataclass
class News:
    """Collects what a build says."""

    said: list[BuildProgress] = field(default_factory=list)

    def __call__(self, news: BuildProgress) -> None:
        self.said.append(news)

    @property
    def text(self) -> str:
        return "\n".join(f"{news.stage} {news.message}" for news in self.said)


@dataclass
class Built:
    """An environment that was built, and what was said meanwhile."""

    environment: Environment
    python: Path
    news: News
    cache: Path
