"""NVML as a library: opened, its GPUs listed by UUID, closed."""

from collections.abc import Callable, Container

import pynvml

from harness.telemetry.nvml import Gpu, GpuLostError
from harness.telemetry.values import Report, reason_of


class NvmlError(Exception):
    """NVML cannot be used on this machine; the message says why."""


class Nvml:
    """The library, initialised. NVML itself is thread-safe."""

    def __init__(self) -> None:
        """Loads `libnvidia-ml.so.1` and initialises it.

        Raises:
            NvmlError: no library, no driver, or they do not fit.
        """
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise NvmlError(f"NVML cannot be used: {reason_of(error.value)}") from None
        self.driver = self._text(pynvml.nvmlSystemGetDriverVersion)
        self.version = self._text(pynvml.nvmlSystemGetNVMLVersion)

    def gpus(self, report: Report) -> tuple[list[Gpu], list[tuple[int, str]]]:
        """The GPUs of this machine, and (index, reason) of those that do not answer."""
        found: list[Gpu] = []
        bad: list[tuple[int, str]] = []
        try:
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            raise NvmlError(f"NVML cannot count the GPUs: {reason_of(error.value)}") from None
        for index in range(count):
            try:
                uuid = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(index))
                found.append(Gpu(index, uuid, pynvml.nvmlDeviceGetHandleByUUID(uuid), report))
            except pynvml.NVMLError as error:
                bad.append((index, reason_of(error.value)))
        return found, bad

    def others(self, known: Container[str], report: Report) -> list[Gpu]:
        """GPUs that answer now and whose UUID is not in `known`: new ones, and lost ones that came back."""
        found: list[Gpu] = []
        try:
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError:
            return found
        for index in range(count):
            try:
                uuid = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(index))
                if uuid in known:
                    continue
                gpu = Gpu(index, uuid, pynvml.nvmlDeviceGetHandleByUUID(uuid), report)
                gpu.read_limit()  # a handle is given for some GPUs that then don't answer
                found.append(gpu)
            except (pynvml.NVMLError, GpuLostError):
                continue  # still gone; its loss is on record
        return found

    def close(self) -> None:
        """Shuts the library down; errors of a driver that is already gone are of no interest."""
        try:
            pynvml.nvmlShutdown()
        except pynvml.NVMLError:
            return

    @staticmethod
    def _text(call: Callable[[], str]) -> str:
        try:
            return str(call())
        except pynvml.NVMLError as error:
            return f"unknown ({reason_of(error.value)})"
