"""The HTML report: one file that needs no network, and executes nothing but its own script."""
