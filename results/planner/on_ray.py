"""A sweep on a Ray cluster. Its nodes get this project's code with the work; they need numpy, and numba to be fast."""

import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import harness
import results
from harness.protocol.errors import EnvError, SpecError

CHUNK = 4  # scenarios in a task
CONNECT_S = 10.0


def spread(work: Callable[[Any], Any], payloads: Sequence[Any], address: str) -> Iterator[Any]:
    """`work` of each payload, in their order, done by the cluster at `address` (`auto`, HOST:PORT, ray://HOST:PORT).

    Raises:
        SpecError: Ray is not installed.
        EnvError: the cluster can't be reached, or a task failed there.
    """
    try:
        import ray
    except ImportError:
        raise SpecError("ray: not installed here; pip install 'agentic-rl-bench[ray]'") from None
    _reach(address)
    packages = [str(Path(str(package.__file__)).parent) for package in (harness, results)]
    try:
        ray.init(address=address, runtime_env={"py_modules": packages}, log_to_driver=False, configure_logging=False)
    except (ConnectionError, RuntimeError, TypeError, ValueError) as error:
        raise EnvError(f"ray = {address}: {error}; `ray status` on the cluster shows what is there") from None
    try:
        task = ray.remote(max_retries=3)(_several)
        chunks = [payloads[at : at + CHUNK] for at in range(0, len(payloads), CHUNK)]
        for found in [task.remote(work, chunk) for chunk in chunks]:
            try:
                yield from ray.get(found)
            except ray.exceptions.RayError as error:
                raise EnvError(f"ray = {address}: {str(error).strip().splitlines()[-1]}") from None
    finally:
        ray.shutdown()


def _reach(address: str) -> None:
    """Ray itself tries for minutes where no one listens."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return  # auto, local: Ray finds it, or says at once that it does not
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_S).close()
    except OSError as error:
        raise EnvError(f"ray = {address}: {error}; `ray status` on the cluster shows where it is") from None


def _several(work: Callable[[Any], Any], payloads: Sequence[Any]) -> list[Any]:
    return [work(payload) for payload in payloads]
