"""Markdown tables and pictures made from results."""
