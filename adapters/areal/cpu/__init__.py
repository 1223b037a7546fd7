"""What AReaL needs on a machine without a GPU; nothing here changes an algorithm, only devices and transports."""
