"""AReaL 1.0.4: the adapter of its single-controller PPOTrainer."""
