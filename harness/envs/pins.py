"""The pins of an environment: what its requirements file asks for, and the digest that keys its folder."""

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path

from adapters.base import Environment
from harness.protocol.errors import EnvError

BUILDER_VERSION = 1  # raised when the same pins would be built differently: older folders are then stale
_PIN = re.compile(r"^(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^]]*\])?\s*(?:==\s*(?P<version>[^\s;#]+)|@\s*\S+)")


@dataclass(frozen=True, slots=True)
class Pin:
    """One package of a requirements file; the version is None when a URL fixes it."""

    name: str  # normalised: lower case, `-` between words
    version: str | None


def normalise(name: str) -> str:
    """A distribution's name as PyPA's name normalisation has it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_lines(requirements: Path) -> list[str]:
    """The lines that mean something: comments and empty lines dropped.

    Raises:
        EnvError: the file cannot be read.
    """
    try:
        text = requirements.read_text(encoding="utf-8")
    except OSError as error:
        raise EnvError(f"{requirements}: the environment's pins cannot be read: {error}") from None
    lines = (re.sub(r"(^|\s)#.*$", "", line).strip() for line in text.splitlines())
    return [line for line in lines if line]


def read_pins(requirements: Path) -> tuple[Pin, ...]:
    """The pins of a requirements file, in its order.

    Raises:
        EnvError: a line is neither an option, nor `name==version`, nor `name @ URL`: only full pins build the same
            environment twice.
    """
    pins = []
    for line in read_lines(requirements):
        if line.startswith("-"):
            continue
        match = _PIN.match(line)
        if match is None:
            raise EnvError(f"{requirements}: {line!r} is no full pin: allowed is name==version or name @ URL")
        pins.append(Pin(normalise(match["name"]), match["version"]))
    return tuple(pins)


def digest(environment: Environment) -> str:
    """12 hex digits over everything that decides what gets installed."""
    content = {
        "builder": BUILDER_VERSION,
        "python": environment.python,
        "requirements": sorted(read_lines(environment.requirements)),
        "pip_arguments": list(environment.pip_arguments),
        "local_wheels": sorted(
            [wheel.name, wheel.version, sorted(wheel.files.items())] for wheel in environment.local_wheels
        ),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]
