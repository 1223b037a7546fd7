"""Many runs one after the other: a matrix from a TOML file, a plan, a journal that survives a kill, and the loop."""
