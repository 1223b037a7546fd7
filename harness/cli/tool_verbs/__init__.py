"""The verbs of `bench tools`, one file each."""
