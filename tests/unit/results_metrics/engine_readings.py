"""Answers of engines, for histories."""

from recorded_histories import History, ns


def reading(history: History, at: float, engine: str = "e0", margin_s: float = 0.0, **values: float) -> None:
    """One answer of an engine, its call `margin_s` to either side."""
    history.add(
        "engine_samples",
        engine=engine,
        mono_ns=ns(at),
        uncertainty_ns=round(margin_s * 1e9),
        family="vllm",
        **{name: float(value) for name, value in values.items()},
    )
