"""Whether pip can find the pins that no ordinary index has, asked before gigabytes of the others are downloaded.

Builds with a local version (`torch==2.13.0+cpu`) are never on PyPI: they come from an index, or a folder of wheels,
that the machine's pip must be told about.
"""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from adapters.base import Environment
from harness.envs.pins import normalise, read_pins
from harness.envs.probe import installer_environment

LIMIT_S = 20.0
WHAT_TO_DO = (
    "PyTorch publishes its CPU builds in an index of their own: tell pip about it (PIP_EXTRA_INDEX_URL=URL, or pip "
    "config set global.extra-index-url URL), or about a folder that has the wheel (PIP_FIND_LINKS=FOLDER)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reachable:
    """One pin with a local version. `found` None: pip could not be asked, or gave no answer in time; `why` says so."""

    pin: str
    found: bool | None
    why: str = ""


def special_pins(environment: Environment) -> tuple[str, ...]:
    """The pins with a local version, as `name==version`; those that bench makes itself are left out.

    Raises:
        EnvError: the pins cannot be read.
    """
    made = {normalise(wheel.name) for wheel in environment.local_wheels}
    pins = read_pins(environment.requirements)
    return tuple(f"{p.name}=={p.version}" for p in pins if p.version and "+" in p.version and p.name not in made)


def ask_pip(python: Path, environment: Environment, *, limit_s: float = LIMIT_S) -> list[Reachable]:
    """Asks the machine's pip for each special pin; downloads nothing but an index page. Takes about a second each.

    Args:
        python: the interpreter that the environment will be made from.
        environment: what would be built.
        limit_s: seconds for all of them; what is not answered by then is unknown.
    """
    found = []
    for pin in special_pins(environment):
        name, _, version = pin.partition("==")
        command = [str(python), "-m", "pip", "index", "versions", name]
        # One retry: pip says that an index did not answer only when it tries again.
        command += ["--retries", "1", "--timeout", str(max(1, int(limit_s / 3)))]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=limit_s,
                check=False,
                env=installer_environment(),
            )
        except subprocess.TimeoutExpired:
            found.append(Reachable(pin=pin, found=None, why=f"pip gave no answer in {limit_s:g} s"))
            continue
        except OSError as error:
            found.append(Reachable(pin=pin, found=None, why=f"pip does not start: {error}"))
            continue
        found.append(_judge(pin, version, done))
    return found


def _judge(pin: str, version: str, done: "subprocess.CompletedProcess[str]") -> Reachable:
    offered = re.search(r"^Available versions: (.*)$", done.stdout, re.MULTILINE)
    if done.returncode == 0 and offered:
        return Reachable(pin=pin, found=version in re.split(r",\s*", offered[1].strip()))
    said = done.stderr.strip().splitlines()
    # Also what pip says when no index answers: only with an answer from one is the pin known to be missing.
    unreached = re.search(r"Connection|resolution|timed out|ProxyError|SSLError", done.stderr, re.IGNORECASE)
    if "No matching distribution found" in done.stderr and not unreached:
        return Reachable(pin=pin, found=False)
    return Reachable(pin=pin, found=None, why=f"pip could not tell: {said[-1] if said else f'exit {done.returncode}'}")
