"""verl's child half: runs inside verl's own environment."""
