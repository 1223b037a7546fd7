"""Other hosts of a run: an agent on each samples it and hands its files over, piece by piece; clocks are compared."""
