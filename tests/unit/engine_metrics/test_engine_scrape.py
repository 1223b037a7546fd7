import time

import pytest
from engine_servers import Page, engine
from expositions import SGLANG_0_5, VLLM_0_30, VLLM_WITHOUT_STATISTICS, vllm_page

from harness.telemetry.engines.scrape import Endpoint, ScrapeError


def test_a_call_carries_its_middle_and_half_its_duration() -> None:
    page = Page(VLLM_0_30)
    with engine(page) as port:
        endpoint = Endpoint(f"http://127.0.0.1:{port}/metrics")
        assert endpoint.scrape().reading is not None  # the first call settles what to ask for
        page.delay_s = 0.1
        before = time.monotonic_ns()
        scrape = endpoint.scrape()
        after = time.monotonic_ns()
        endpoint.close()
    assert scrape.reading is not None
    assert scrape.reading.values["generation_tokens"] == 150
    assert before <= scrape.mono_ns - scrape.uncertainty_ns
    assert scrape.mono_ns + scrape.uncertainty_ns <= after + 1
    assert scrape.uncertainty_ns >= 0.05e9


def test_a_page_that_takes_names_is_asked_for_no_more_than_is_needed() -> None:
    histograms = "".join(f'vllm:e2e_request_latency_seconds_bucket{{le="{i}"}} 1\n' for i in range(500))
    page = Page(vllm_page(1, 2) + histograms, filters=True)
    with engine(page) as port:
        endpoint = Endpoint(f"http://127.0.0.1:{port}/metrics")
        endpoint.scrape()
        scrape = endpoint.scrape()
        endpoint.close()
    assert page.asked[0] == "/metrics"
    assert page.asked[-1].startswith("/metrics/?name%5B%5D=vllm%3A")
    assert scrape.size_bytes == len(vllm_page(1, 2))
    assert scrape.reading is not None
    assert scrape.reading.values["running_requests"] == 1


@pytest.mark.parametrize("text", [VLLM_0_30, SGLANG_0_5])
def test_a_page_that_knows_no_names_gives_the_same_numbers(text: str) -> None:
    with engine(Page(text)) as port:
        endpoint = Endpoint(f"http://127.0.0.1:{port}/metrics")
        first, second = endpoint.scrape(), endpoint.scrape()
        endpoint.close()
    assert first.reading == second.reading
    assert first.reading is not None


def test_failures_are_told_and_an_engine_that_comes_back_is_read_again() -> None:
    page = Page(vllm_page(1, 2))
    with engine(page) as port:
        endpoint = Endpoint(f"http://127.0.0.1:{port}/metrics")
        assert endpoint.scrape().reading is not None
        page.status = 503
        assert "HTTP 503" in str(endpoint.scrape().reason)
        page.status, page.text = 200, VLLM_WITHOUT_STATISTICS
        assert "disable_log_stats" in str(endpoint.scrape().reason)
    gone = endpoint.scrape()
    assert gone.reading is None
    assert "Error" in str(gone.reason)
    page.text = vllm_page(3, 4)
    with engine(page, port):
        back = endpoint.scrape()
        endpoint.close()
    assert back.reading is not None
    assert back.reading.values["running_requests"] == 3


def test_an_engine_that_hangs_costs_the_timeout_and_no_more() -> None:
    page = Page(vllm_page(1, 2))
    page.delay_s = 30.0
    with engine(page) as port:
        scrape = Endpoint(f"http://127.0.0.1:{port}/metrics", timeout_s=0.2).scrape()
        page.delay_s = 0.0
    assert scrape.reading is None
    assert "timed out" in str(scrape.reason)
    assert scrape.uncertainty_ns < 10e9


@pytest.mark.parametrize("url", ["https://h:1/metrics", "h:1", "http://h:many/metrics", "http:///metrics"])
def test_an_address_that_is_none_is_refused_by_name(url: str) -> None:
    with pytest.raises(ScrapeError, match="h"):
        Endpoint(url)
