"""verl 0.9.1: its V1 trainer in the placements colocated, disaggregated and async."""
