"""Readings from a dcgm-exporter: one page over HTTP, joined to GPUs by UUID.

Labels differ between versions: UUID or uuid (the old namespace), Hostname or hostname, with or without pci_bus_id and
modelName, and those of containers. Only the UUID is needed. A row with GPU_I_ID is of a MIG instance: a share of an
instance is no share of the GPU, so it is left out and counted.
"""

import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.telemetry.dcgm.exposition import parse
from harness.telemetry.dcgm.fields import BY_NAME, FIELDS, number, reading
from harness.telemetry.values import Value

TIMEOUT_S = 2.0
LONGEST_PAGE = 16 * 2**20
DEFAULT_URL = "http://localhost:9400/metrics"
COUNTERS_FILE = "/etc/dcgm-exporter/default-counters.csv"
_UUID_LABELS = ("UUID", "uuid", "gpu_uuid")


class ExporterError(Exception):
    """The exporter gave no page that can be read; the message says why."""


@dataclass(slots=True)
class Page:
    """The readings of a page by UUID and column, and what was seen beside them."""

    readings: dict[str, dict[str, Value]] = field(default_factory=dict)
    reasons: dict[tuple[str, str], str] = field(default_factory=dict)  # (uuid, column) -> why there is no value
    columns: set[str] = field(default_factory=set)  # that the page has, for whichever GPU
    instances: int = 0  # rows of MIG instances, left out
    bad_lines: int = 0
    dcgm: bool = False  # whether anything on it is DCGM's


def fetch(url: str, timeout_s: float = TIMEOUT_S) -> str:
    """The page.

    Raises:
        ExporterError: no answer in time, an answer other than 200, or one that is too long or no text.
    """
    request = urllib.request.Request(url, headers={"Accept": "text/plain;version=0.0.4"})
    try:
        # A proxy of the environment is for the world outside, and an exporter is on this machine or beside it.
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=timeout_s) as answer:
            body = answer.read(LONGEST_PAGE + 1)
    except urllib.error.HTTPError as error:
        raise ExporterError(f"{url} answered {error.code}") from None
    except (OSError, ValueError) as error:
        raise ExporterError(f"{url} gave no page: {error}") from None
    if len(body) > LONGEST_PAGE:
        raise ExporterError(f"{url} gave more than {LONGEST_PAGE >> 20} MiB: not an exporter")
    try:
        return str(body.decode("utf-8"))
    except UnicodeDecodeError:
        raise ExporterError(f"{url} gave no text: not an exporter") from None


def read_page(text: str) -> Page:
    """The readings on a page."""
    exposition, page = parse(text), Page()
    page.bad_lines = len(exposition.bad)
    for sample in exposition.samples:
        page.dcgm = page.dcgm or sample.name.startswith("DCGM_")
        known = BY_NAME.get(sample.name)
        uuid = next((sample.labels[name] for name in _UUID_LABELS if sample.labels.get(name)), None)
        if known is None or uuid is None:
            continue
        page.columns.add(known.column)
        if sample.labels.get("GPU_I_ID"):
            page.instances += 1
            continue
        try:
            value, why = reading(known, number(sample.text))
        except ValueError:
            page.bad_lines += 1
            continue
        page.readings.setdefault(uuid, {})[known.column] = value
        if why is not None:
            page.reasons[uuid, known.column] = why
    return page


def missing(page: Page) -> Mapping[str, str]:
    """For each column that the page has for no GPU: how to turn it on."""
    found: dict[str, str] = {}
    some = bool({one.column for one in FIELDS if one.id > 1000} & page.columns)
    for one in FIELDS:
        if one.column in page.columns:
            continue
        how = f"add the line `{one.line}` to the exporter's counters file (its -f option; {COUNTERS_FILE}), restart it"
        if not one.default:
            how = f"off in dcgm-exporter's own list: {how}"
        elif not some:
            how = (
                "no profiling field at all: the GPU may have none, another profiler may hold the counters, or the"
                f" exporter lacks CAP_SYS_ADMIN; else {how}"
            )
        found[one.column] = how
    return found
