"""Tools over the real web: search providers and a fetch of pages that stays out of private networks."""
