"""The data set of a run, in verl's own hook (`data.custom_cls`): row i is the plan's prompt i."""

from collections import Counter
from typing import Any

import torch
from torch.utils.data import Dataset

from adapters.verl.worker.process import run_spec


class Rows(Dataset):
    """One row per planned prompt. verl starts over when it runs out, which raises a row's `attempt`."""

    def __init__(self, **_: Any) -> None:
        self.count = run_spec().prompts
        self._seen: Counter[int] = Counter()

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        if not 0 <= index < self.count:
            raise IndexError(index)
        attempt = self._seen[index]
        self._seen[index] += 1
        return {
            "raw_prompt": [{"role": "user", "content": f"prompt {index}"}],
            "dummy_tensor": torch.tensor([0], dtype=torch.uint8),  # as verl's own data set: some batch needs a tensor
            "data_source": "bench",
            "reward_model": {"style": "rule", "ground_truth": ""},
            "extra_info": {"index": index},
            "index": index,
            "attempt": attempt,
            "agent_name": "bench",
        }
