"""What the parent and the framework's process share: specs, phases, events, models (standard library only)."""

PROTOCOL_VERSION = 1
