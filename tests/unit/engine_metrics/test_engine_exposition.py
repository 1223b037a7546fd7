import math

import pytest
from expositions import SGLANG_0_4, SGLANG_0_5, VLLM_0_6, VLLM_0_9, VLLM_0_30, VLLM_WITHOUT_STATISTICS
from hypothesis import given
from hypothesis import strategies as st

from harness.telemetry.engines.exposition import READINGS, ExpositionError, parse

# running, waiting, cache, prefix queries, prefix hits, prompt, generated, preempted
EXPECTED = {
    "vllm 0.6": (VLLM_0_6, "vllm", (8, 2, 0.25, None, None, 15033, 5011, 3)),
    "vllm 0.9": (VLLM_0_9, "vllm", (4, 0, 0.125, 1000, 640, 1000, 300, 0)),
    "vllm 0.30": (VLLM_0_30, "vllm", (5, 1, 0.03, 1000, 512, 1000, 150, 0)),
    "sglang 0.4": (SGLANG_0_4, "sglang", (162, 2826, 0.28, None, None, 8_000_000, 7_557_572, None)),
    "sglang 0.5": (SGLANG_0_5, "sglang", (5, 1, 0.5, None, 640, 1000, 200, 2)),
}


@pytest.mark.parametrize("version", EXPECTED)
def test_each_version_says_the_same_things_under_its_own_names(version: str) -> None:
    text, family, values = EXPECTED[version]
    reading = parse(text)
    assert reading.family == family
    assert tuple(reading.values[name] for name in READINGS) == values
    assert set(reading.missing) == {name for name, value in zip(READINGS, values, strict=True) if value is None}
    assert all(family in why for why in reading.missing.values())


@pytest.mark.parametrize("text", [VLLM_WITHOUT_STATISTICS, "", "<html>not found</html>"])
def test_a_page_without_an_engines_numbers_says_what_to_turn_on(text: str) -> None:
    with pytest.raises(ExpositionError, match=r"disable_log_stats.*enable_metrics"):
        parse(text)


@pytest.mark.parametrize(
    "line",
    ['vllm:num_requests_running{model_name="m} 1.0', "vllm:num_requests_running", "vllm:num_requests_running many"],
)
def test_a_line_that_cannot_be_read_is_named(line: str) -> None:
    with pytest.raises(ExpositionError, match="num_requests_running"):
        parse(f"{VLLM_0_9}{line}\n")


@pytest.mark.parametrize("value", ["NaN", "+Inf"])
def test_a_value_that_is_no_number_is_unknown_with_its_reason(value: str) -> None:
    reading = parse(f'vllm:num_requests_running{{a="b"}} {value}\nvllm:num_requests_waiting 1\n')
    assert (reading.values["running_requests"], reading.values["waiting_requests"]) == (None, 1.0)
    assert reading.missing["running_requests"].startswith("the engine says")


def test_openmetrics_times_exemplars_and_crlf_are_no_part_of_the_value() -> None:
    text = 'vllm:generation_tokens_total{a="}"} 5.0 1700000000.5 # {trace_id="x"} 1.0\r\nvllm:prompt_tokens_total 7\r\n'
    reading = parse(text)
    assert (reading.values["generation_tokens"], reading.values["prompt_tokens"]) == (5.0, 7.0)


def test_colons_may_have_become_underscores() -> None:
    assert parse("sglang_num_running_reqs 3\n").values["running_requests"] == 3.0


label = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"], exclude_characters="\n\r"), max_size=20)
number = st.floats(0, 1e12, allow_nan=False)


@given(st.lists(st.tuples(label, number), min_size=1, max_size=5), st.text(max_size=200))
def test_whatever_stands_in_labels_and_comments_the_values_are_added_up(
    series: list[tuple[str, float]], comment: str
) -> None:
    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"')

    lines = [f'vllm:generation_tokens_total{{model_name="{escaped(name)}"}} {value!r}' for name, value in series]
    noise = "".join(f"# {part}\n" for part in comment.splitlines())
    found = parse(noise + "\n".join(lines) + "\n").values["generation_tokens"]
    assert found == pytest.approx(math.fsum(value for _, value in series))
