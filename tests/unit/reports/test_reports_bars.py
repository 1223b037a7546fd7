import pytest

from reports import bars, style


def _row(name: str, **parts: float) -> bars.Row:
    return bars.Row(name=name, parts=parts)


def test_shares_of_a_unit_end_at_the_right_edge() -> None:
    rows = [_row("train", train=30.0, wait_rollout=60.0, other=10.0), _row("engine 0", generating=1.0, tool_wait=3.0)]
    with style.styled():
        made = bars.draw_account(rows, granularity="engine", window_s=100, foot="foot")
        boxes = made.axes[0].patches
    ends = [box.get_x() + box.get_width() for box in boxes]  # type: ignore[attr-defined]
    assert ends[2] == pytest.approx(100.0)
    assert ends[4] == pytest.approx(100.0)
    assert [box.get_width() for box in boxes][:3] == pytest.approx([30.0, 60.0, 10.0])  # type: ignore[attr-defined]


def test_nothing_to_draw_is_no_picture() -> None:
    assert bars.with_time([]) == []
    assert bars.with_time([_row("a", train=0.0)]) == []
    assert bars.with_time([_row("a")]) == []
    assert bars.with_time([_row("a"), _row("b", train=1.0)]) == [_row("b", train=1.0)]


def test_hundreds_of_units_are_left_to_the_table() -> None:
    many = [_row(f"e{n}", generating=1.0) for n in range(65)]
    assert bars.with_time(many, bars.MOST_ROWS) == []
    assert len(bars.with_time(many[1:], bars.MOST_ROWS)) == 64
    assert len(bars.with_time(many)) == 65


@pytest.mark.parametrize("count", [1, 17])
def test_long_names_stay_inside_the_picture(count: int) -> None:
    rows = [
        bars.Row(name=f"W{n} " + "W" * 200, parts={"train": 20.0 + n, "zzz_unheard_of": 1.0}, note="n = " + "9" * 99)
        for n in range(count)
    ]
    with style.styled():
        made = bars.draw_steps(rows, title="T" * 300, how="how " * 80, foot="f " * 300)
        renderer = made.canvas.get_renderer()  # type: ignore[attr-defined]
        texts = [*made.texts, *made.axes[0].texts, *made.axes[0].get_yticklabels()]
        for text in texts:
            seen = text.get_window_extent(renderer)
            assert seen.x0 >= -1, text.get_text()
            assert seen.x1 <= made.bbox.x1 + 1, text.get_text()


def test_a_number_that_is_wider_than_its_part_is_left_out() -> None:
    parts = {"wait_rollout": 0.78, "logprob": 0.144, "train": 0.49, "weight_sync": 0.2}  # a real run's, beside a longer
    rows = [bars.Row(name="async", parts=parts), bars.Row(name="colocated", parts={"generation": 2.6})]
    with style.styled():
        made = bars.draw_steps(rows, title="t", how="h", foot="f")
        renderer = made.canvas.get_renderer()  # type: ignore[attr-defined]
        axes = made.axes[0]
        boxes = [patch.get_window_extent(renderer) for patch in axes.patches]
        inside = [text for text in axes.texts if text.get_ha() == "center"]
        seen = [text.get_text() for text in inside]
        for text in inside:
            one = text.get_window_extent(renderer)
            assert any(box.x0 <= one.x0 and one.x1 <= box.x1 for box in boxes), text.get_text()
    assert "0.14 s" not in seen
    assert {"0.78 s", "0.49 s", "2.6 s"} <= set(seen)
