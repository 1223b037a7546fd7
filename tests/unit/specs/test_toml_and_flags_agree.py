"""The same request by file, by flags or by a mix is the same run: equal specs, equal digests."""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.protocol.spec import RunSpec
from harness.specs import Machine, resolve
from harness.specs.request import KEYS

NODE = Machine(gpu_memory_bytes=(80 * 2**30,) * 8)
PLACED = st.one_of(
    st.fixed_dictionaries({"placement": st.just("colocated"), "gpus": st.sampled_from(["8", "4", "2"])}),
    st.fixed_dictionaries({"placement": st.just("disaggregated"), "gpus": st.sampled_from(["4+4", "6+2", "2+6"])}),
    st.fixed_dictionaries(
        {"placement": st.just("async"), "gpus": st.sampled_from(["4+4", "6+2"]), "max_staleness": st.integers(1, 3)}
    ),
)
OTHERS = st.fixed_dictionaries(
    {"framework": st.just("skyrl"), "device": st.sampled_from(["cuda", "auto"])},
    optional={
        "preset": st.just("deep-research-smoke"),
        "model": st.sampled_from(["random:qwen3-4b", "random:qwen3-14b"]),
        "steps": st.integers(6, 9),
        "warmup_steps": st.integers(0, 5),
        "batch_size": st.sampled_from([8, 24]),
        "group_size": st.sampled_from([3, 6]),
        "seed": st.integers(0, 3),
        "sample_hz": st.sampled_from([1, 2.5, 10]),
        "timeout": st.sampled_from([60, 0.5]),
        "latency_scale": st.sampled_from([1, 0.5]),
        "offload": st.sampled_from(["none", "full"]),
        "as_shipped": st.booleans(),
        "unverified": st.booleans(),
        "nodes": st.just(1),
        "engine": st.just("vllm"),
        "workload": st.just("deep-research"),
        "tools": st.just("mock"),
        "load": st.just("fixed"),
    },
)
REQUESTS = st.builds(lambda placed, others: {**placed, **others}, PLACED, OTHERS)
OVERRIDES = st.dictionaries(
    st.from_regex(r"[a-z]{1,5}(\.[a-z]{1,5}){1,2}", fullmatch=True),
    st.text(alphabet="abcXYZ019._-=[]'\" /", max_size=8),
    max_size=3,
)


def as_toml(values: Mapping[str, Any], overrides: Mapping[str, str]) -> str:
    # JSON texts, numbers and truth values are TOML's too.
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    lines += ["[overrides.skyrl]", *(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in overrides.items())]
    return "\n".join(lines)


def resolved(flags: Mapping[str, Any], toml: str | None = None, overrides: Mapping[str, str] | None = None) -> RunSpec:
    pairs = [f"{key}={value}" for key, value in (overrides or {}).items()]
    if toml is None:
        return resolve(flags, overrides=pairs, machine=NODE).spec
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.toml"
        path.write_text(toml, encoding="utf-8")
        return resolve(flags, config=path, overrides=pairs, machine=NODE).spec


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(REQUESTS, OVERRIDES, st.data())
def test_a_request_is_the_same_however_it_is_written(
    request: dict[str, Any], overrides: dict[str, str], data: st.DataObject
) -> None:
    by_flags = resolved(request, overrides=overrides)
    by_file = resolved({}, as_toml(request, overrides))
    in_flags = data.draw(st.sets(st.sampled_from(sorted(request))))
    mixed = resolved(
        {key: request[key] for key in in_flags},
        as_toml({key: value for key, value in request.items() if key not in in_flags}, overrides),
    )
    assert by_flags == by_file == mixed
    assert by_flags.work_digest == by_file.work_digest == mixed.work_digest
    assert by_flags.spec_digest == by_file.spec_digest == mixed.spec_digest


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(REQUESTS)
def test_writing_out_what_was_resolved_changes_nothing(request: dict[str, Any]) -> None:
    spec = resolved(request)
    said = json.loads(spec.to_json())
    # A colocated run has one number.
    said["gpus"] = str(spec.gpus.train) if spec.placement == "colocated" else str(spec.gpus)
    explicit = {key: said[key] for key in KEYS if said[key] is not None and key != "faults"}
    assert resolved(explicit) == spec


def test_flags_win_over_the_file() -> None:
    toml = 'framework = "skyrl"\nplacement = "colocated"\nsteps = 20\nseed = 5\n'
    spec = resolved({"steps": 10, "seed": None}, toml)
    assert (spec.steps, spec.seed) == (10, 5)


def test_overrides_given_by_flag_win_over_the_file_and_keep_the_rest() -> None:
    toml = as_toml({"framework": "skyrl", "placement": "async"}, {"a.b": "1", "c.d": "2"})
    assert dict(resolved({}, toml, {"a.b": "9"}).overrides) == {"a.b": "9", "c.d": "2"}


def test_toml_values_become_the_text_that_was_written() -> None:
    toml = """
        framework = "skyrl"
        placement = "async"
        [overrides.skyrl]
        trainer.lr = 1e-6
        trainer.flash = false
        trainer.n = 3
        "trainer.files" = "['x']"
        [overrides.skyrl.generator]
        share = 0.80
        [overrides.simulated]
        other = 1
    """
    by_file = resolved({}, toml)
    by_flags = resolved(
        {"framework": "skyrl", "placement": "async"},
        overrides={
            "trainer.lr": "1e-6",
            "trainer.flash": "false",
            "trainer.n": "3",
            "trainer.files": "['x']",
            "generator.share": "0.80",
        },
    )
    assert by_file.overrides == by_flags.overrides
    assert by_file.spec_digest == by_flags.spec_digest


def test_gpus_can_be_written_in_three_ways() -> None:
    base = {"framework": "skyrl", "placement": "async"}
    texts = ['gpus = "4+4"', "gpus = {train = 4, rollout = 4}", "gpus.train = 4\ngpus.rollout = 4"]
    assert len({resolved(base, text).spec_digest for text in texts}) == 1
    colocated = {"framework": "skyrl", "placement": "colocated"}
    assert resolved(colocated, "gpus = 4") == resolved(colocated, 'gpus = "4"') == resolved({**colocated, "gpus": "4"})
