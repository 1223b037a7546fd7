"""`simulated` plays plans through the real protocol and computes nothing: for tests, demos and fault drills."""
