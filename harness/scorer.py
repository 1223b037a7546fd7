"""Whether a reward MODULE:FUNCTION is there, asked of the Python that will run it before anything is started.

Nothing of the user's module is executed: see `scorer_source`. What only running it can tell, the worker finds before
its first trajectory.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from adapters.base import Adapter, Environment
from harness.envs import locate
from harness.envs.layer import is_ready, layer_folder, project
from harness.protocol.errors import SpecError
from harness.protocol.spec import RunSpec
from harness.scorer_source import look

_SCRIPT = Path(__file__).with_name("scorer_source.py")
_ASK_S = 60.0


def check_scorer(spec: RunSpec, adapter: Adapter) -> str | None:
    """Checks a reward of the user's own by the worker's Python, where that is there already.

    Where it is not, this Python is asked: a module that it has, and the function not in it, is a mistake too.

    Returns:
        What can't be told before the worker runs, if anything.

    Raises:
        SpecError: the module or the function is not there, or can't be called with an answer and a row.
    """
    if ":" not in spec.reward:
        return None
    environment = adapter.environment(spec.device, spec.engine)
    python = known_python(environment)
    if python is not None:
        return check_scorer_of(python, spec.reward)
    found = look(spec.reward)
    if found["wrong"] is not None and found["missing"] is None:
        raise SpecError(f"reward = {spec.reward}: {found['wrong']}")
    name = environment.name if environment is not None else "the framework"
    return (
        f"reward = {spec.reward}: whether the Python of {name} finds it is not known before that is built; it is looked"
        " for then, before the framework starts"
    )


def check_scorer_of(python: Path, reward: str) -> str | None:
    """The same, asked of that Python.

    Raises:
        SpecError: as `check_scorer`.
    """
    if ":" not in reward:
        return None
    try:
        # Where the worker runs is no place of the user's: a relative PYTHONPATH does not lead home from there either.
        asked = subprocess.run(
            [str(python), "-P", str(_SCRIPT), reward],
            capture_output=True,
            text=True,
            cwd="/",
            timeout=_ASK_S,
            check=False,
        )
        found = json.loads(asked.stdout)
        wrong, unknown, missing = found["wrong"], found["unknown"], found["missing"]
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError) as error:
        return (
            f"reward = {reward}: {python} could not be asked for it ({type(error).__name__}); its worker looks for it"
        )
    if wrong is not None:
        raise SpecError(
            f"reward = {reward}: {wrong}"
            + (
                f" for {python}, which runs the framework: install it there, or put its directory into PYTHONPATH"
                if missing
                else ""
            )
        )
    return None if unknown is None else f"reward = {reward}: {unknown}, so it is looked for before the first trajectory"


def known_python(environment: Environment | None) -> Path | None:
    """The interpreter that a worker would have; None where its environment is not built yet. Builds nothing."""
    if environment is None:
        return Path(sys.executable)
    given = os.environ.get(environment.python_variable)
    if given:
        python = Path(given).expanduser().absolute()
        return python if python.is_file() and os.access(python, os.X_OK) else None
    location = locate(environment)
    if location.marker() is None:
        return None
    layer = layer_folder(location, project())
    return layer / "bin" / "python" if is_ready(layer) else location.python
