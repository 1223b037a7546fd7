"""The frameworks' virtual environments: built on first use, keyed by their pins, shared by all checkouts.

`ensure` is what a run calls; `create`, `list_environments`, `check`, `share_environments` and `remove` are the verbs of
`bench env`.
"""

from harness.envs.build import create, ensure
from harness.envs.manage import (
    CheckReport,
    EnvironmentRow,
    ShareReport,
    Status,
    bytes_on_disk,
    check,
    known_environments,
    list_environments,
    remove,
    share_environments,
)
from harness.envs.progress import BuildProgress, Display, Report, Stage
from harness.envs.store import Location, Marker, locate

__all__ = [
    "BuildProgress",
    "CheckReport",
    "Display",
    "EnvironmentRow",
    "Location",
    "Marker",
    "Report",
    "ShareReport",
    "Stage",
    "Status",
    "bytes_on_disk",
    "check",
    "create",
    "ensure",
    "known_environments",
    "list_environments",
    "locate",
    "remove",
    "share_environments",
]
