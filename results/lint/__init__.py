"""Identities that figures of a training run must keep, for our runs and for what others print or publish."""
