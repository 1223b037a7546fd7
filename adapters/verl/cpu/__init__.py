"""What verl needs on a machine without a GPU; nothing here changes an algorithm, only devices, engine and transport."""
