"""Says where a run's rollout engines listen, so that their own numbers can be scraped."""

from harness.protocol.events import Scalar
from harness.protocol.recorder import Recorder

ENDPOINT = "engine.endpoint"


def announce_engine(recorder: Recorder, engine: str, *, url: str | None = None, reason: str | None = None) -> None:
    """Announces one engine, once it answers.

    Args:
        engine: its name as the turns carry it.
        url: its Prometheus page. None: it has none, and `reason` says why.
    """
    labels: dict[str, Scalar] = (
        {"engine": engine, "url": url} if url is not None else {"engine": engine, "reason": reason}
    )
    recorder.metric(ENDPOINT, None if url is None else 1.0, labels=labels)
