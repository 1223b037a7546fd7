"""What a trace's Parquet file says of itself: its version, and the facts of its source."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.protocol.errors import SpecError

VERSION = 1
VERSION_KEY = b"bench.trace_version"
FACTS_KEY = b"bench.trace_facts"


def facts_in(metadata: Mapping[bytes, bytes], path: Path) -> dict[str, Any]:
    """The facts in a file's metadata.

    Raises:
        SpecError: it is no trace, or one of a newer version.
    """
    version = metadata.get(VERSION_KEY, b"").decode(errors="replace")
    if not version.isdecimal():
        raise SpecError(
            f"{path}: is Parquet, but no trace (it has no {VERSION_KEY.decode()}); a run recorded with `--record FILE`"
            " makes one, and `bench tools trace RUN -o FILE` makes one of any run"
        )
    if int(version) > VERSION:
        raise SpecError(
            f"{path}: trace version {version} was written by a newer bench (this one knows {VERSION}); upgrade"
        )
    try:
        facts = json.loads(metadata.get(FACTS_KEY, b"{}"))
    except ValueError:
        facts = None
    if not isinstance(facts, dict):
        raise SpecError(f"{path}: its {FACTS_KEY.decode()} is no JSON object; record it again")
    return facts
