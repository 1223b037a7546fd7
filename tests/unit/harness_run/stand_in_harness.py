"""A harness of its own process, to be killed and interrupted: argv is the runs folder, then words for the child.

Prints the run folder as soon as there is one, and at the end `status exit_code`.
"""

import sys
from pathlib import Path

from stand_in import SLEEPER, StandIn, make_spec

from harness.live import PlainDisplay
from harness.run import run

if __name__ == "__main__":
    words = sys.argv[2:]
    timeout = next((float(word.partition("=")[2]) for word in words if word.startswith("timeout=")), None)
    result = run(
        make_spec(timeout=timeout),
        StandIn(*words),
        Path(sys.argv[1]),
        display=PlainDisplay(sys.stdout),
        sampler=() if "no-sampler" in words else SLEEPER,
    )
    print(f"result {result.status} {result.exit_code} {result.run_dir}", flush=True)
    sys.exit(result.exit_code)
