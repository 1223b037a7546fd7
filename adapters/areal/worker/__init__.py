"""AReaL's child half: runs inside AReaL's own environment."""
