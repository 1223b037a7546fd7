"""verl's replay buffers with a short poll, in verl's own hook (`trainer.v1.sampler.custom_sampler`)."""

from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer, ReplayBufferAsync

from adapters.verl.overrides import SHORT_POLL_S


class ShortPoll(ReplayBuffer):
    """Of the synchronous trainer."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "poll_interval": SHORT_POLL_S})


class ShortPollAsync(ReplayBufferAsync):
    """Of the asynchronous trainers."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "poll_interval": SHORT_POLL_S})
