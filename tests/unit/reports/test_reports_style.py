import hashlib
from pathlib import Path

import matplotlib
import pytest

from harness.protocol.phases import Phase
from reports import style


def test_every_phase_has_a_colour_and_idle_time_a_hatch() -> None:
    assert {phase.value for phase in Phase} <= set(style.COLOURS)
    assert style.hatch("wait_rollout")
    assert style.hatch("other")
    assert style.hatch("never heard of it")
    assert not style.hatch("train")


def test_classes_that_touch_differ_in_lightness_or_hatch() -> None:
    """What is drawn side by side must be told apart in grey: a hatch, or another luminance."""

    def grey(name: str) -> float:
        fill = style.colour(name)
        red, green, blue = (int(fill[i : i + 2], 16) for i in (1, 3, 5))
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    for one, two in (("generating", "tool_wait"), ("logprob", "train"), ("generation", "logprob")):
        assert abs(grey(one) - grey(two)) > 20 or style.hatch(one) != style.hatch(two), (one, two)


@pytest.mark.parametrize(("text", "limit"), [("abcdefghij", 5), ("abcdefghij", 4), ("abcdefghij", 1), ("ab", 5)])
def test_shortened_text_fits_and_keeps_its_ends(text: str, limit: int) -> None:
    short = style.shorten(text, limit)
    assert len(short) == min(limit, len(text))
    assert short == text or "…" in short
    assert short[0] in ("a", "…")


@pytest.mark.parametrize(
    ("value", "text"),
    [(181.4, "181 s"), (9.96, "10.0 s"), (1.26, "1.3 s"), (0.152, "0.15 s"), (0.0973, "97 ms"), (0.0, "0 s")],
)
def test_durations_never_vanish(value: float, text: str) -> None:
    assert style.duration(value) == text


def test_files_are_the_same_bytes_each_time_and_carry_no_date(tmp_path: Path) -> None:
    digests = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        with style.styled():
            made = style.figure(3)
            axes = made.add_axes((0.1, 0.3, 0.8, 0.4))
            axes.barh(0, 3, hatch="////")
            style.head(made, "Title", "subtitle", "foot")
            files = style.save(made, tmp_path / name / "picture")
        assert [file.suffix for file in files] == [".png", ".svg"]
        digests.append([hashlib.sha256(file.read_bytes()).hexdigest() for file in files])
    assert digests[0] == digests[1]
    svg = (tmp_path / "one" / "picture.svg").read_text(encoding="utf-8")
    assert "<dc:date>" not in svg


def test_the_callers_matplotlib_settings_are_left_alone() -> None:
    before = matplotlib.rcParams["font.size"]
    with style.styled():
        assert matplotlib.rcParams["svg.hashsalt"] == "agentic-rl-bench"
    assert matplotlib.rcParams["font.size"] == before
    assert matplotlib.rcParams["svg.hashsalt"] != "agentic-rl-bench"
