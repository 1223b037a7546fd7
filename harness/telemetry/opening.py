"""NVML as it is opened: in a thread of its own, since a driver may take long, or hold that call for ever."""

import threading
from collections.abc import Callable, Container, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.telemetry.library import Nvml
    from harness.telemetry.nvml import Gpu

OLD = "the Python of this sampler has an nvidia-ml-py that is too old"


class Opening(threading.Thread):
    """Opens NVML, and finds the GPUs. Half a minute is usual for eight GPUs that nothing keeps initialised."""

    def __init__(self, report: Callable[[str, str, str], None]) -> None:
        super().__init__(name="open-nvml", daemon=True)
        self._report = report
        self.imported = False  # what reads GPUs can be imported
        self.nvml: Nvml | None = None
        self.gpus: list[Gpu] = []
        self.bad: list[tuple[int, str]] = []
        self.reason: str | None = None

    @property
    def versions(self) -> Mapping[str, str]:
        """Of driver and library, as soon as they are known."""
        return {} if self.nvml is None else {"driver": self.nvml.driver, "nvml": self.nvml.version}

    def run(self) -> None:
        """Sets `nvml` and `gpus`, or `reason`."""
        try:
            from harness.telemetry.library import Nvml, NvmlError
        except ImportError as error:  # on a node, the sampler runs on the framework's Python
            self.reason = f"the Python of this sampler has no nvidia-ml-py ({error})"
            return
        except AttributeError as error:
            self.reason = f"{OLD} ({error})"
            return

        self.imported = True
        try:
            nvml = Nvml()
            self.gpus, self.bad = nvml.gpus(self._report)
            if not self.gpus:
                self.reason = "NVML lists no usable GPU"
            self.nvml = nvml
        except NvmlError as error:
            self.reason = str(error)
        except AttributeError as error:
            self.reason = f"{OLD} ({error})"

    def others(self, known: Container[str]) -> Sequence["Gpu"]:
        """GPUs that answer now and whose UUID is not in `known`; none as long as NVML is not open."""
        return () if self.nvml is None else self.nvml.others(known, self._report)
