"""SkyRL 0.4.0: colocated, disaggregated and fully async training of one agent workload."""
