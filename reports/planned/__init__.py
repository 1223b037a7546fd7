"""Calibrations, plans and scores as a reader sees them: tables, the front of choices, and what decides."""
