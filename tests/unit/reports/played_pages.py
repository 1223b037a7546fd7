"""Pages of played runs, and the data in them, as a test reads them."""

import base64
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import played_runs as played

from harness.protocol.spec import Gpus, RunSpec
from reports.case import Case
from reports.html.axis import Fineness
from reports.html.data import run_data
from reports.report import write_report

FINE = Fineness()
KINDS = {"u1": "<u1", "u2": "<u2", "u4": "<u4", "i4": "<i4", "f4": "<f4"}


def small(placement: str = "colocated", **changes: Any) -> RunSpec:
    split = Gpus(train=1, rollout=2) if placement != "colocated" else Gpus(train=2, rollout=2)
    return played.make_spec(placement, **({"batch_size": 4, "group_size": 2, "steps": 8, "gpus": split} | changes))


def array(packed: dict[str, str]) -> "np.ndarray[Any, np.dtype[Any]]":
    return np.frombuffer(base64.b64decode(packed["d"]), dtype=KINDS[packed["k"]])


def data_of(run: Path, fine: Fineness = FINE) -> tuple[Case, dict[str, Any]]:
    case = Case.load(run)
    return case, json.loads(json.dumps(run_data(case, "run", fine, list), allow_nan=False))


def html_of(folder: Path, *runs: Path) -> str:
    target = folder / "report.html"
    write_report(list(runs), folder / "out", html=target, draw=False)
    return target.read_text(encoding="utf-8")


class Seen(HTMLParser):
    """Elements with their attributes, and the text of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self.elements.append((f"/{tag}", {}))

    def handle_data(self, data: str) -> None:
        if self.elements and self.elements[-1][0] == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
        self.text += data
