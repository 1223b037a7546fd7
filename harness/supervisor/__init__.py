"""The supervisor: a small process of its own that outlives a killed harness and leaves no process of a run behind.

`python -m harness.supervisor` reads its orders (one JSON line) and then commands from its standard input, and reports
as JSON lines on its standard output. `handle.SupervisorHandle` is the harness's side. Standard library only: it starts
in a few tens of milliseconds and stays small.
"""
