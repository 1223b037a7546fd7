"""What the planner knows of one system: constants with their source, fitted to a run or taken from a table."""
