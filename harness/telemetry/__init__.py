"""The sampler: a process of its own that reads GPU and host sensors while a run goes on."""
