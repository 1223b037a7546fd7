"""The shared episode behind verl's AgentLoopBase; runs in verl's agent-loop actors."""

import asyncio
from contextvars import ContextVar
from functools import cache
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput
from verl.workers.rollout.llm_server import LLMServerClient

from adapters.child.codec import ChatCodec
from adapters.child.track import require
from adapters.verl.worker.process import rollout_recorder, run_spec
from workloads.deep_research.boundary import EpisodeResult, Generated, Sampling
from workloads.deep_research.work import Work, run_folder

ABORTED_S = 1.0  # before an aborted request is sent again, as verl's own client waits
_SERVER: ContextVar[str | None] = ContextVar("server", default=None)  # that answered this task's last request
_WORKS: dict[int, Work] = {}  # by tokenizer: verl makes an agent loop anew for each trajectory


@cache
def tap_client() -> None:
    """Notes which server each request went to: the client hides it.

    Raises:
        TapError: the client lost the method that picks a server.
    """
    client: Any = LLMServerClient
    real: Any = require(client, "_acquire_server")

    async def _acquire_server(self: Any, *args: Any, **kwargs: Any) -> Any:
        server, handle = await real(self, *args, **kwargs)
        _SERVER.set(str(server))
        return server, handle

    client._acquire_server = _acquire_server


class BenchAgentLoop(AgentLoopBase):
    """Runs the plan of one (prompt, sample); verl decides when, on which engine, at what load."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        tap_client()
        self.recorder = rollout_recorder()
        tokenizer = self.tokenizer
        if id(tokenizer) not in _WORKS:
            codec = ChatCodec(tokenizer)
            _WORKS[id(tokenizer)] = Work(run_spec(), codec=codec, recorder=self.recorder, folder=run_folder())
        self.work = _WORKS[id(tokenizer)]

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        """One AgentLoopOutput. `kwargs` holds the row's columns, `session_id` and `global_steps`."""
        try:
            return await self._run(sampling_params, kwargs)
        except Exception as error:
            self.recorder.failure("worker", error)  # verl logs it and goes on, with the group missing
            raise

    async def _run(self, sampling_params: dict[str, Any], kwargs: dict[str, Any]) -> Any:
        prompt, sample, attempt = int(kwargs["index"]), int(kwargs["session_id"]), int(kwargs["attempt"])
        # Dispatched for step s, when the weights are those of version s - 1.
        scheduled = int(kwargs["global_steps"]) - 1

        async def generate(trajectory_id: str, ids: list[int], sampling: Sampling) -> Generated:
            return await self._turn(trajectory_id, ids, sampling, sampling_params)

        result = await self.work.trajectory(
            prompt=prompt,
            sample=sample,
            attempt=attempt,
            generate=generate,
            score=self._score,
            version_scheduled=scheduled,
        )
        return _output(result, self.work.codec.pad_id, scheduled)

    async def _turn(
        self, trajectory_id: str, ids: list[int], sampling: Sampling, sampling_params: dict[str, Any]
    ) -> Generated:
        output = await self.server_manager.generate(
            request_id=trajectory_id,
            prompt_ids=ids,
            sampling_params={
                **sampling_params,
                # No min_tokens: after an abort the client asks for the rest by lowering max_tokens alone.
                "max_tokens": sampling.max_tokens,
                "ignore_eos": sampling.ignore_eos,
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "top_k": sampling.top_k,
                **({"stop_token_ids": list(sampling.stop_ids)} if sampling.stop_ids else {}),
            },
        )
        versions = output.extra_fields
        return Generated(
            ids=list(output.token_ids),
            logprobs=[float(value) for value in output.log_probs or []],
            version_start=versions.get("min_global_steps"),
            version_end=versions.get("max_global_steps"),
            engine=_SERVER.get(),
            stop_reason=output.stop_reason,
        )

    async def _score(self, trajectory_id: str, ids: list[int], reply: list[int]) -> Generated:
        """The engine's logprobs of a given reply: prompt logprobs of a one-token request, under one version.

        It is sent by the base client: the one that resumes aborted requests keeps their tokens and drops prompt
        logprobs. As there, an aborted request is sent again after a second.
        """
        while True:
            output = await LLMServerClient.generate(
                self.server_manager,
                request_id=trajectory_id,
                prompt_ids=[*ids, *reply],
                sampling_params={"max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0},
            )
            found = output.extra_fields.get("prompt_logprobs")
            if output.stop_reason not in ("aborted", "abort") and found is not None:
                break
            await asyncio.sleep(ABORTED_S)
        version = output.extra_fields.get("global_steps")
        first = len(ids) - 1  # verl's list begins with the second token
        return Generated(
            ids=reply,
            logprobs=[float(value[0]) for value in found[first : first + len(reply)]],
            version_start=version,
            version_end=version,
            engine=_SERVER.get(),
        )


def _output(result: EpisodeResult, pad_id: int, scheduled: int) -> Any:
    """As verl wants it; a trajectory that failed trains on nothing but keeps its place."""
    ids, mask, logprobs = result.response_ids, result.loss_mask, result.logprobs
    if not ids:
        ids, mask, logprobs = [pad_id], [0], [0.0]
    elif result.status != "ok":
        mask = [0] * len(ids)
    first, last = result.version_first, result.version_last
    return AgentLoopOutput(
        prompt_ids=result.prompt_ids or [pad_id],
        response_ids=ids,
        response_mask=mask,
        response_logprobs=logprobs,
        reward_score=result.reward if result.reward is not None else 0.0,
        num_turns=result.turns,
        metrics=AgentLoopMetrics(),
        extra_fields={
            # verl computes with them, so they must be whole numbers even where nothing was generated.
            "min_global_steps": scheduled if first is None else first,
            "max_global_steps": scheduled if last is None else last,
            "reward_extra_info": {},
            "turn_scores": [],
            "tool_rewards": [],
        },
    )
