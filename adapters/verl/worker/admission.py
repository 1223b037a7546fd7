"""Admission as verl has it: whole batches, (1 + run-ahead) of them dispatched and not yet trained on."""

from harness.protocol.recorder import Recorder
from harness.protocol.spec import RunSpec


class Admission:
    """Counts groups between dispatch and sampling, and records when the gate opens and closes.

    The rule is one for all placements: when 1 + run-ahead batches are out, nothing more is admitted until the trainer
    has taken a batch and begun its next step.
    """

    def __init__(self, recorder: Recorder, spec: RunSpec) -> None:
        self.recorder = recorder
        self.group = spec.group_size
        self.cap = spec.trajectories_per_step * (spec.max_staleness + 1)
        self.groups = 0  # dispatched, not sampled
        self._open = False

    @property
    def in_flight(self) -> int:
        """Trajectories dispatched and not yet taken by the trainer."""
        return self.groups * self.group

    def dispatching(self, groups: int) -> None:
        """The trainer is about to dispatch that many groups."""
        if not self._open:
            self._open = True
            self.recorder.gate(True, "a batch is dispatched", in_flight=self.in_flight, cap=self.cap)
        self.groups += groups

    def dispatched(self) -> None:
        """They are dispatched."""
        if self.in_flight >= self.cap:
            self._open = False
            why = "all batches that the run-ahead allows are dispatched"
            self.recorder.gate(False, why, in_flight=self.in_flight, cap=self.cap)

    def taken(self, groups: int) -> None:
        """The trainer took (or dropped) that many groups."""
        self.groups -= groups

    def end(self) -> None:
        """The last step has ended."""
        self.recorder.gate(False, "the last step has ended", in_flight=self.in_flight, cap=self.cap)
