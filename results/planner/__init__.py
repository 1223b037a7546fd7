"""The planner: a simulator of training placements in virtual time, and what is built on it."""
