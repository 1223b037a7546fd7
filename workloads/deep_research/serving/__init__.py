"""The tool server: what runs outside the frameworks, with libraries of its own."""
