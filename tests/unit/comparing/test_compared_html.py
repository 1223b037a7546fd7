"""The page of a comparison as HTML: what the Markdown says, charts that add up, and nothing of a run is markup."""

import json
import math
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from made_measures import made_run, steady

from harness.cli import call
from reports.compared.charts import changes_of, waterfall_of
from reports.compared.html import html
from results.comparing.comparison import Comparison, Pair, Side, compare_sides
from results.comparing.kept import write_measures

EVIL = "=cmd()</script><script>window.pwned=1</script><img src=x onerror='window.pwned=1'>"


def several(label: str, train: float, tool: float, count: int = 4, **more: object) -> Side:
    jitter = (0.0, 0.004, -0.003, 0.001)
    return Side.of(label, [steady(f"{label}{i}", train + jitter[i], tool + jitter[-i], **more) for i in range(count)])


def compared(**more: object) -> Comparison:
    return compare_sides([several("main", 0.3, 1.0, **more), several("branch", 0.42, 0.9, **more)])


class Page(HTMLParser):
    """Tags, ids and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.said: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.said.append(data)


def only(found: Comparison) -> Pair:
    (pair,) = found.pairs
    return pair


def test_a_page_is_whole_and_stable() -> None:
    text = html([compared()])
    assert text == html([compared()])
    page = Page(text)
    assert "simulated colocated: branch against main (simulated)" in "".join(page.said)
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    links = {attrs["href"] for tag, attrs in page.tags if tag == "a" and attrs.get("href", "").startswith("#")}
    assert {link[1:] for link in links if link} <= set(ids)
    assert not [
        attrs for _, attrs in page.tags if any((attrs.get(at) or "").startswith("http") for at in ("src", "href"))
    ]
    assert any("default-src 'none'" in (attrs.get("content") or "") for _, attrs in page.tags)


def test_every_number_of_the_markdown_is_in_the_page() -> None:
    from reports.compared.page import markdown

    found = compared()
    said = " ".join("".join(Page(html([found])).said).split())
    for number in re.findall(r"[+-]?\d+\.\d+%?", markdown([found])):
        assert number in said, number


def test_the_waterfalls_bars_sum_to_its_total() -> None:
    pair = only(compared())
    chart = waterfall_of(pair.blame, "A", "B")
    *parts, total = chart.rows
    assert total.total
    assert math.fsum(bar.seconds for bar in parts) == pytest.approx(total.seconds, abs=1e-12)
    drawn = math.fsum(bar.length * (1 if bar.kind == "more" else -1) for bar in parts)
    assert drawn == pytest.approx(total.length * (1 if total.kind == "more" else -1), abs=1e-9)
    place = chart.zero
    for bar in parts:  # each begins where the one before ended
        begins = bar.begin if bar.kind == "more" else bar.begin + bar.length
        assert begins == pytest.approx(place, abs=1e-9)
        place = bar.begin + bar.length if bar.kind == "more" else bar.begin
    assert all(0 <= bar.begin <= bar.begin + bar.length <= 1 for bar in chart.rows)
    train = next(bar for bar in parts if bar.name == "phase_train_s")
    assert train.low is not None
    assert train.high is not None
    assert train.low < train.begin + train.length < train.high


def test_no_blame_says_why() -> None:
    chart = waterfall_of("r1: no steady window", "A", "B")
    assert (chart.rows, chart.why) == ((), "r1: no steady window")


def test_changes_are_drawn_where_they_are() -> None:
    found = compared()
    (ratios, *_) = changes_of("headline", only(found).claims["headline"], found.rule, "A", "B")
    rows = {row.name: row for row in ratios.rows}
    step, rate = rows["step_time_s"], rows["throughput_tokens_per_s_gpu"]
    assert (step.kind, rate.kind) == ("worse", "worse")
    assert rate.at < ratios.zero < step.at
    # On logs: as much slower as the rate is lower.
    assert step.at - ratios.zero == pytest.approx(ratios.zero - rate.at, rel=1e-6)
    assert step.low is not None
    assert step.high is not None
    assert step.low < step.at < step.high
    assert ratios.band[0] < ratios.zero < ratios.band[1]
    places = [at for at, _ in ratios.ticks]
    assert places == sorted(places)
    assert all(later - earlier > 0.1 for earlier, later in pairwise(places))


def test_a_wild_interval_does_not_squash_the_others() -> None:
    wild = {"tool_latency_s": 1.0}
    a = [made_run(f"a{i}", {"phase_train_s": [1.0 + 0.001 * i] * 4}, values=wild) for i in range(3)]
    b = [
        made_run(f"b{i}", {"phase_train_s": [1.1 + 0.001 * i] * 4}, values={"tool_latency_s": 10.0 ** (i - 1)})
        for i in range(3)
    ]
    found = compare_sides([Side.of("a", a), Side.of("b", b)])
    (chart, *_) = changes_of("headline", only(found).claims["headline"], found.rule, "A", "B")
    rows = {row.name: row for row in chart.rows}
    assert rows["tool_latency_s"].cut_low
    assert rows["tool_latency_s"].cut_high
    assert not rows["step_time_s"].cut_high
    assert rows["step_time_s"].at - chart.zero > 0.05


def test_one_run_a_side_has_no_intervals() -> None:
    found = compare_sides([several("a", 0.3, 1.0, 1, placement="async"), several("b", 0.4, 1.0, 1, placement="async")])
    (chart, *_) = changes_of("headline", only(found).claims["headline"], found.rule, "A", "B")
    assert all(row.low is None and row.kind == "even" for row in chart.rows)
    assert "no intervals" in waterfall_of(only(found).blame, "A", "B").how
    assert "<svg" in html([found])


def test_several_comparisons_stand_in_one_page_with_names_of_their_own() -> None:
    text = html([compared(), compared(framework="areal")])
    page = Page(text)
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert "2 comparisons, cell by cell" in text
    assert {"c-1", "c-2"} <= set(ids)


def test_nothing_of_a_run_is_markup() -> None:
    found = compare_sides(
        [
            several("a", 0.3, 1.0, notes=(EVIL,), commit=EVIL),
            Side(label=EVIL, runs=several(EVIL, 0.4, 1.0).runs, left_out=((EVIL, EVIL),), notices=(EVIL,)),
        ],
        apart=(EVIL,),
    )
    page = Page(html([found]))
    assert sum(tag == "script" for tag, _ in page.tags) == 1
    assert not [tag for tag, _ in page.tags if tag == "img"]
    assert EVIL in "".join(page.said)


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, train in (("a", 0.3), ("b", 0.4)):
        (tmp_path / name).mkdir()
        write_measures(tmp_path / name / "m.parquet", several(name, train, 1.0).runs)
    sides = [str(tmp_path / "a"), str(tmp_path / "b")]
    assert call(["compare", *sides, "--html", "-o", str(tmp_path / "page.html")]) == 0
    assert capsys.readouterr() == (f"written: {tmp_path / 'page.html'}\n", "")
    assert call(["compare", *sides, "--format", "html"]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == ((tmp_path / "page.html").read_text(), "")
    assert call(["compare", *sides, "--html", "--format", "json"]) == 2
    assert "--html and --format json" in capsys.readouterr().err
    assert call(["compare", *sides, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)
    assert call(["compare", *sides]) == 0
    assert capsys.readouterr().out.startswith("# simulated colocated")
