"""The plans of a run, drawn again from its spec: what each trajectory was asked to do."""

from functools import lru_cache

from harness.protocol.spec import Load, RunSpec
from workloads.deep_research.plan import TrajectoryPlan, draw_plan
from workloads.deep_research.presets import PRESETS, preset_of

WORKLOAD = "deep-research"
CACHED_PLANS = 4096


class Plans:
    """Draws plans of one spec. `why_none` says why there are none (a live load, another workload), else None."""

    def __init__(self, spec: RunSpec) -> None:
        self.why_none: str | None = None
        if spec.load is not Load.FIXED:
            self.why_none = f"load {spec.load.value}: the model decides, nothing is planned"
        elif spec.workload != WORKLOAD or (spec.preset not in PRESETS and not spec.preset_definition):
            self.why_none = f"workload {spec.workload} with preset {spec.preset} is not known to this version"
        preset = preset_of(spec) if self.why_none is None else None

        @lru_cache(maxsize=CACHED_PLANS)
        def draw(prompt: int, sample: int) -> TrajectoryPlan | None:
            if self.why_none is not None or preset is None or prompt < 0 or sample < 0:
                return None
            return draw_plan(preset, spec.seed, prompt, sample, latency_scale=spec.latency_scale)

        self._draw = draw
        self._digests: dict[tuple[int, int], str] = {}

    def get(self, prompt: int | None, sample: int | None) -> TrajectoryPlan | None:
        """The plan of one trajectory; None when nothing is planned or it is not known which trajectory it is."""
        return None if prompt is None or sample is None else self._draw(prompt, sample)

    def digest(self, prompt: int | None, sample: int | None) -> str | None:
        """Its plan's digest, which is kept where the plan is not; None as of `get`."""
        if prompt is None or sample is None:
            return None
        known = self._digests.get((prompt, sample))
        plan = self._draw(prompt, sample) if known is None else None
        if plan is not None:
            known = self._digests[prompt, sample] = plan.digest
        return known


def planned_ns(latency_s: float | None) -> int:
    """A planned latency in whole nanoseconds; 0 for a turn without a tool call."""
    return 0 if latency_s is None else round(latency_s * 1e9)
