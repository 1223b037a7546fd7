"""verl's weight syncs, their proof and its admission gate, without verl."""

import asyncio
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from contract_specs import make_spec
from verl_stubs import found

from adapters.child.proof import PROMPT_TOKENS, SyncProof
from adapters.child.track import TapError, Track
from adapters.verl.phases import PHASES
from adapters.verl.worker.admission import Admission
from adapters.verl.worker.proof import ask_engines, servers_of
from adapters.verl.worker.syncs import tap_pauses, tap_proof
from harness.protocol.events import Gate, Metric, Span
from harness.protocol.recorder import Recorder, make_hello
from harness.protocol.spec import Placement


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path / "events.jsonl", make_hello("run", "controller"))


class StubManager:
    """As verl's CheckpointEngineManager of separate pools, in small."""

    def update_weights(self, global_steps: int) -> dict[str, float]:
        async def sync() -> None:
            await self.abort_replicas()
            await self.resume_generation_replicas()

        asyncio.run(sync())
        return {"version": global_steps}

    async def abort_replicas(self) -> None: ...

    async def resume_generation_replicas(self) -> None: ...


def test_a_sync_is_one_span_per_engine_with_its_version(recorder: Recorder) -> None:
    manager = StubManager()
    tap_pauses(manager, recorder, ["a", "b"])
    assert manager.update_weights(7) == {"version": 7}
    spans = found(recorder, Span)
    assert [(span.pool, span.unit, span.attributes["version"]) for span in spans] == [
        ("rollout", "a", 7),
        ("rollout", "b", 7),
    ]
    parts = [spans[0].attributes[name] for name in ("pause_ns", "transfer_ns", "resume_ns")]
    assert sum(int(part or 0) for part in parts) == spans[0].end_ns - spans[0].start_ns


@pytest.mark.parametrize("name", ["abort_replicas", "resume_generation_replicas", "update_weights"])
def test_a_manager_without_a_method_fails_by_name(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delattr(StubManager, name)
    with pytest.raises(TapError, match=rf"StubManager\.{name} is gone"):
        tap_pauses(StubManager(), recorder, ["a"])


class StubServer:
    """As verl's server actors, in small: scores each token of a prompt by its own number."""

    def __init__(self, shift: float) -> None:
        self.shift = shift
        self.asked: list[dict[str, Any]] = []
        self.generate = SimpleNamespace(remote=self._generate)

    def _generate(self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Any:
        self.asked.append({"request_id": request_id, **sampling_params})
        # Begins with the second token, and a row of zero fills it up to the prompt's length.
        scores = [[-float(token) - self.shift] for token in prompt_ids[1:]]
        return SimpleNamespace(extra_fields={"prompt_logprobs": [*scores, [0.0]]})


@pytest.fixture
def proof(recorder: Recorder) -> SyncProof:
    return SyncProof(recorder, make_spec("verl", Placement.ASYNC), 100)


def test_every_engine_is_asked_for_itself(
    proof: SyncProof, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(get=list))
    servers = {"a": StubServer(0.0), "b": StubServer(1000.0)}
    ask_engines(proof, servers, 1)
    probes = found(recorder, Metric)
    assert [(probe.labels["engine"], probe.labels["source"], probe.labels["version"]) for probe in probes] == [
        ("a", "engine", 1),
        ("b", "engine", 1),
    ]
    scored = [-float(token) for row in proof.rows for token in row[PROMPT_TOKENS:]]
    assert list(probes[0].values) == scored
    assert list(probes[1].values) == [value - 1000.0 for value in scored]
    for server in servers.values():
        assert len({asked["request_id"] for asked in server.asked}) == len(proof.rows)
        assert {(asked["max_tokens"], asked["prompt_logprobs"]) for asked in server.asked} == {(1, 0)}


def test_an_engine_that_does_not_answer_fails_the_run(proof: SyncProof, monkeypatch: pytest.MonkeyPatch) -> None:
    def get(answers: list[Any]) -> list[Any]:
        if any(answer is None for answer in answers):
            raise RuntimeError("the actor died")
        return answers

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(get=get))
    dead = SimpleNamespace(generate=SimpleNamespace(remote=lambda **_: None))
    with pytest.raises(RuntimeError, match="the actor died"):
        ask_engines(proof, {"a": StubServer(0.0), "b": dead}, 1)


def test_the_engines_are_all_replicas_of_the_manager() -> None:
    manager = SimpleNamespace(server_addresses=["h:1", "h:2"], server_handles=["one", "two"])
    assert servers_of(manager) == {"h:1": "one", "h:2": "two"}
    with pytest.raises(ValueError, match="shorter"):
        servers_of(SimpleNamespace(server_addresses=["h:1", "h:2"], server_handles=["one"]))


@pytest.mark.parametrize("name", ["server_addresses", "server_handles"])
def test_a_manager_that_hides_its_engines_fails_by_name(name: str) -> None:
    manager = SimpleNamespace(server_addresses=[], server_handles=[])
    delattr(manager, name)
    with pytest.raises(TapError, match=rf"\.{name} is gone"):
        servers_of(manager)


def test_the_trainer_is_asked_before_a_sync_and_the_engines_after_it(proof: SyncProof, recorder: Recorder) -> None:
    order: list[str] = []
    manager = SimpleNamespace(update_weights=lambda version: order.append(f"sync {version}"))
    tap_proof(
        manager,
        Track(recorder, "train", PHASES, lambda: None),
        proof,
        lambda version: order.append(f"trainer {version}"),
        lambda version: order.append(f"engines {version}"),
    )
    for version in (2, 3):  # the proof phase ends with version 2
        manager.update_weights(version)
    assert order == ["trainer 2", "sync 2", "engines 2", "sync 3"]


def test_a_gate_closes_when_the_run_ahead_is_full_and_opens_with_the_next_batch(recorder: Recorder) -> None:
    admission = Admission(recorder, make_spec("verl", Placement.ASYNC))  # 4 groups of 2, one step ahead
    for _ in range(2):
        admission.dispatching(4)
        admission.dispatched()
    admission.taken(4)
    admission.dispatching(4)
    gates = found(recorder, Gate)
    assert [(gate.open, gate.in_flight, gate.cap) for gate in gates] == [(True, 0, 16), (False, 16, 16), (True, 8, 16)]


def test_a_synchronous_gate_closes_once_the_batch_is_out_and_for_good_at_the_end(recorder: Recorder) -> None:
    admission = Admission(recorder, make_spec("verl", Placement.DISAGGREGATED))
    admission.dispatching(4)
    admission.dispatched()
    admission.taken(4)
    admission.end()
    assert [(gate.open, gate.in_flight) for gate in found(recorder, Gate)] == [(True, 0), (False, 8), (False, 0)]
