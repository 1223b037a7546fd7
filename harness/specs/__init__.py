"""From what a user asked (flags, a TOML file, overrides) to one complete, checked `RunSpec`."""

from harness.specs.machine import Machine, probe_machine
from harness.specs.resolve import Resolved, check_machine, default_spec, resolve

__all__ = ["Machine", "Resolved", "check_machine", "default_spec", "probe_machine", "resolve"]
