"""The workshop page: sliders for a fleet of rollout workers, and what the simulator says of it at once."""
