"""The request of one run: what to run, where, and on what work.

A `RunSpec` is always complete: `harness.specs` fills in the defaults before one is made, so that two requests that
mean the same are equal and have equal digests.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import get_type_hints

from harness.protocol.errors import SpecError
from harness.protocol.kinds import fits, name_of
from harness.protocol.scalars import INT_LIMIT, shown
from harness.protocol.settings import one_of, settings


class Placement(StrEnum):
    """Who shares GPUs, and how old training data may be."""

    COLOCATED = "colocated"  # the same GPUs take turns; max_staleness 0
    DISAGGREGATED = "disaggregated"  # separate pools; max_staleness 0
    ASYNC = "async"  # separate pools; max_staleness >= 1


class Load(StrEnum):
    """Who decides what a trajectory does."""

    FIXED = "fixed"  # the plan is imposed
    LIVE = "live"  # the model decides


class Policy(StrEnum):
    """Who writes the replies of a live load."""

    MODEL = "model"
    SCRIPTED = "scripted"  # a script that knows the questions' form; the engine scores its tokens


class Thinking(StrEnum):
    """What becomes of a reply's <think> block in the next turns of a live load."""

    KEEP = "keep"  # history is never re-rendered
    STRIP = "strip"  # taken out of the history, as chat templates do: the prefix cache breaks there


class Device(StrEnum):
    """What the framework computes on."""

    CUDA = "cuda"
    CPU = "cpu"


class Offload(StrEnum):
    """Training state moved off the GPU between uses."""

    NONE = "none"
    OPTIMIZER = "optimizer"
    FULL = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """GPUs per pool. Colocated: both numbers are the one shared pool's."""

    train: int
    rollout: int

    def __str__(self) -> str:
        return f"{self.train}+{self.rollout}"


SPEC_TEXT_VARIABLE = "BENCH_SPEC"  # the spec itself, for processes on nodes that don't see the run's folder
RAY_ADDRESS = re.compile(r"^[^\s/:]+:\d{1,5}$|^\[[0-9a-fA-F:.]+\]:\d{1,5}$")

MOST_GPUS = 10**6  # of a pool: a file that says more is damaged

# A fault is planted by tests and by the weight-sync control; a real run has none.
FAULT = re.compile(r"^[a-z][a-z0-9-]*(=[A-Za-z0-9.,:_-]+)?$")

WORK_FIELDS = (
    "workload",
    "preset",
    "load",
    "tools",
    "seed",
    "batch_size",
    "group_size",
    "model",
    "context_tokens",
    "latency_scale",
    "preset_definition",
    "reward",
    "reward_digest",
    "policy",
    "thinking",
    "max_turns",
    "turn_tokens",
    "dataset_digest",
    "corpus_digest",
    "trace_digest",
    "web_cache",
    "allow_private",
)
SYSTEM_FIELDS = (
    "framework",
    "placement",
    "gpus",
    "nodes",
    "max_staleness",
    "engine",
    "rollout_tp",
    "micro_batch_tokens",
    "offload",
    "device",
    "as_shipped",
    "overrides",
    "faults",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """One run, complete. Sizes are counts, times are seconds; `batch_size` counts prompts per step."""

    framework: str
    placement: Placement
    workload: str
    preset: str
    load: Load
    tools: str  # mock | local | web:NAME,NAME | web (no key is set here) | replay (`trace`, times latency_scale)
    model: str
    gpus: Gpus
    nodes: int
    steps: int
    warmup_steps: int
    batch_size: int
    group_size: int
    max_staleness: int
    seed: int
    device: Device
    engine: str
    rollout_tp: int
    context_tokens: int
    micro_batch_tokens: int
    offload: Offload
    timeout: float | None
    sample_hz: float
    latency_scale: float = 1.0
    preset_definition: str = ""  # the preset as JSON where it is not a built-in one
    reward: str = "plan"  # plan | probe (fixed load); exact | f1 | MODULE:FUNCTION (live load)
    reward_digest: str = ""  # of the source of MODULE; "unknown" where it is not found here
    policy: Policy = Policy.MODEL
    thinking: Thinking = Thinking.KEEP
    max_turns: int = 12  # of a live trajectory
    turn_tokens: int = 2048  # generated at most in one live turn
    dataset: str = "generated"  # | corpus (the questions of `corpus`) | a file; rows lie in the folder's dataset.jsonl
    dataset_digest: str = ""  # generated | corpus:ITS DIGEST | of the file's content and how its columns are read
    columns: Mapping[str, str] = field(default_factory=dict)  # of the file: prompt | answer | extra -> its column
    corpus: str = ""  # of local tools: generated:PAGES, or a corpus folder
    corpus_digest: str = ""
    trace: str = ""  # the file that tools = replay play
    trace_digest: str = ""
    dcgm: str = "auto"  # address of a dcgm-exporter | dmon | off | auto; in neither digest
    ray_address: str = ""  # HOST:PORT of a Ray cluster that is there; "": it starts its own. In neither digest
    web_cache: str = "write"  # off | read | write: whether web tools' answers are kept and used
    allow_private: bool = False  # whether web tools may open pages of private networks
    record: str | None = None  # file that tool calls are recorded into; in neither digest
    as_shipped: bool = False
    unverified: bool = False  # leave to run what an adapter refuses until someone has checked it; in neither digest
    overrides: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[str, ...] = ()

    @property
    def total_gpus(self) -> int:
        """GPUs of the whole run, each counted once."""
        if self.placement is Placement.COLOCATED:
            return self.gpus.train
        return self.gpus.train + self.gpus.rollout

    @property
    def trajectories_per_step(self) -> int:
        """Trajectories a step trains on."""
        return self.batch_size * self.group_size

    @property
    def prompts(self) -> int:
        """Rows of the data set: one unshuffled epoch that no placement can run out of."""
        return (self.steps + self.max_staleness + 2) * self.batch_size

    @property
    def work(self) -> dict[str, object]:
        """The fields of WORK_FIELDS that decide something in this run: what changes nothing changes no digest."""
        kind = self.tools.partition(":")[0]
        unused: set[str] = set()
        if self.load is Load.FIXED:
            unused |= {"policy", "thinking", "max_turns", "turn_tokens"}
        else:
            unused |= {"preset", "preset_definition"}
        if kind not in ("mock", "replay"):
            unused.add("latency_scale")  # what these tools take is what they take
        if kind != "web":
            unused |= {"web_cache", "allow_private"}
        if kind != "local":
            unused.add("corpus_digest")  # its questions, where they are asked, are in dataset_digest
        if kind != "replay":
            unused.add("trace_digest")
        found = {name: getattr(self, name) for name in WORK_FIELDS if name not in unused}
        # Two data sets without a digest of their own are not the same.
        found["dataset_digest"] = self.dataset_digest or self.dataset
        return found

    @property
    def work_digest(self) -> str:
        """Names the work offered: runs whose work digests differ are not compared."""
        return _digest(self.work)

    @property
    def spec_digest(self) -> str:
        """Names the work and the system under test: the key of a baseline."""
        system = {name: getattr(self, name) for name in SYSTEM_FIELDS}
        return _digest({**self.work, **system, "gpus": str(self.gpus)})

    def check(self) -> None:
        """Checks what no type can.

        Raises:
            SpecError: names the key, its value and what is allowed.
        """
        at_least_one = (
            "nodes",
            "steps",
            "batch_size",
            "group_size",
            "rollout_tp",
            "context_tokens",
            "micro_batch_tokens",
            "max_turns",
            "turn_tokens",
        )
        for name in at_least_one:
            _require(getattr(self, name) >= 1, name, getattr(self, name), "a whole number of at least 1")
        for name in ("max_staleness", "seed", "warmup_steps"):
            _require(getattr(self, name) >= 0, name, getattr(self, name), "0 or more")
        for pool in ("train", "rollout"):
            count = getattr(self.gpus, pool)
            _require(count >= 1, f"gpus ({pool} pool)", count, "at least 1 GPU in each pool, e.g. --gpus 4+4")
        _require(self.sample_hz > 0, "sample_hz", self.sample_hz, "more than 0, e.g. 10")
        _require(self.sample_hz <= 100, "sample_hz", self.sample_hz, "at most 100: sensors refresh slower")
        _require(self.latency_scale > 0, "latency_scale", self.latency_scale, "more than 0; 1 is as planned")
        known = self.dcgm in ("auto", "dmon", "off") or self.dcgm.startswith(("http://", "https://"))
        _require(
            known, "dcgm", self.dcgm, "auto, dmon, off, or an exporter's address, e.g. http://localhost:9400/metrics"
        )
        address = RAY_ADDRESS.match(self.ray_address) is not None or not self.ray_address
        _require(address, "ray_address", self.ray_address, "HOST:PORT, as `ray start --head` prints it")
        if self.timeout is not None:
            _require(self.timeout > 0, "timeout", self.timeout, "more than 0 seconds")
        if self.placement is Placement.COLOCATED:
            _require(
                self.gpus.train == self.gpus.rollout,
                "gpus",
                str(self.gpus),
                "one number when colocated (the same GPUs take turns), e.g. --gpus 8",
            )
        if self.placement is Placement.ASYNC:
            allowed = "1 or more when async; --placement disaggregated has 0"
            _require(self.max_staleness >= 1, "max_staleness", self.max_staleness, allowed)
        else:
            allowed = f"0 when {self.placement.value}; --placement async allows more"
            _require(self.max_staleness == 0, "max_staleness", self.max_staleness, allowed)
        _require(
            self.gpus.rollout % self.rollout_tp == 0,
            "rollout_tp",
            self.rollout_tp,
            f"a divisor of the {self.gpus.rollout} rollout GPUs",
        )
        _require(
            self.warmup_steps < self.steps,
            "warmup_steps",
            self.warmup_steps,
            f"fewer than steps = {self.steps}",
        )
        _require(self.web_cache in ("off", "read", "write"), "web_cache", self.web_cache, "off, read or write")
        for fault in self.faults:
            _require(FAULT.match(fault) is not None, "faults", fault, "name or name=value")

    def to_json(self) -> str:
        """The spec as indented JSON, with its digests."""
        return json.dumps({**asdict(self), "work_digest": self.work_digest, "spec_digest": self.spec_digest}, indent=2)

    @classmethod
    def from_json(cls, text: str) -> "RunSpec":
        """The spec that `to_json` wrote.

        Raises:
            SpecError: not JSON, keys that this version does not know, or values of another type than their field's.
        """
        try:
            return cls._parsed(text)
        except (ValueError, TypeError) as error:
            raise SpecError(f"spec.json cannot be read: {error}") from None

    @classmethod
    def _parsed(cls, text: str) -> "RunSpec":
        """Raises ValueError or TypeError, in words."""
        raw = settings(text, _NEEDED, (*FIELD_NAMES, "work_digest", "spec_digest"))
        for digest in ("work_digest", "spec_digest"):
            raw.pop(digest, None)
        raw["placement"] = one_of(Placement, "placement", raw["placement"])
        raw["load"] = one_of(Load, "load", raw["load"])
        raw["device"] = one_of(Device, "device", raw["device"])
        raw["offload"] = one_of(Offload, "offload", raw["offload"])
        raw["policy"] = one_of(Policy, "policy", raw.get("policy", Policy.MODEL))
        raw["thinking"] = one_of(Thinking, "thinking", raw.get("thinking", Thinking.KEEP))
        gpus = raw["gpus"]
        if not isinstance(gpus, dict) or gpus.keys() != {"train", "rollout"}:
            raise ValueError(f"gpus = {shown(gpus)}: allowed are the numbers train and rollout")
        raw["gpus"] = Gpus(**gpus)
        raw["faults"] = tuple(faults) if isinstance(faults := raw.get("faults", []), list) else faults
        spec = cls(**raw)
        _check_types(spec)
        _check_types(spec.gpus)
        return spec

    @classmethod
    def load_file(cls, path: Path) -> "RunSpec":
        """The spec of a run folder's spec.json.

        Raises:
            SpecError: missing or unreadable.
        """
        try:
            return cls._parsed(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise SpecError(f"{path} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise SpecError(f"{path} cannot be read: it is no text in UTF-8; {_RESTORE}") from None
        except (ValueError, TypeError) as error:
            raise SpecError(f"{path} cannot be read: {error}; {_RESTORE}") from None

    def fault(self, name: str) -> str | None:
        """The value of a planted fault ("" when it has none), or None when it is not planted."""
        for fault in self.faults:
            key, _, value = fault.partition("=")
            if key == name:
                return value
        return None


FIELD_NAMES = tuple(f.name for f in fields(RunSpec))
_NEEDED = tuple(f.name for f in fields(RunSpec) if f.default is MISSING and f.default_factory is MISSING)
_RESTORE = "put a copy of the run's own back, or use the bench that wrote it"


def _check_types(made: RunSpec | Gpus) -> None:
    for name, declared in get_type_hints(type(made)).items():
        if not fits(value := getattr(made, name), declared):
            raise TypeError(f"{name} = {str(value)[:40]!r}: not of type {name_of(declared)}")
        if isinstance(value, int | float) and not 0 <= value <= (MOST_GPUS if isinstance(made, Gpus) else INT_LIMIT):
            raise ValueError(f"{name} = {value}: less than 0, or too many")


def _digest(raw: Mapping[str, object]) -> str:
    text = json.dumps(raw, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _require(ok: bool, key: str, value: object, allowed: str) -> None:
    if not ok:
        raise SpecError(f"{key} = {value}: allowed is {allowed}")
