"""Workloads: framework-free descriptions of the work every framework is offered (standard library only)."""
