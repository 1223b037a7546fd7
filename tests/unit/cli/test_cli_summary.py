from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.cli.summary import summary
from results.metrics import Figure, RunFigures


@pytest.mark.parametrize(("gpus", "slot", "other"), [(False, "process", "GPU"), (True, "GPU", "process")])
def test_rates_are_per_process_where_there_is_no_gpu(tmp_path: Any, gpus: bool, slot: str, other: str) -> None:
    rates = ("throughput_tokens_per_s_gpu", "goodput_tokens_per_s_gpu")
    figures = {name: Figure(metric=name, unit="token/s/GPU", value=12.0, n=5) for name in rates}
    proof = SimpleNamespace(proven=True)
    found = SimpleNamespace(figures=figures, sync_proof=proof, window=None, no_window="too short")
    text = summary(cast(RunFigures, found), tmp_path / "report.md", gpus=gpus)
    assert f"12.0 generated tokens/s/{slot}" in text
    assert f"12.0 tokens/s/{slot}" in text
    assert f"/s/{other}" not in text
