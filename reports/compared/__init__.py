"""Pages of `bench compare`: what was given becomes sides (`gather`), and the comparison text or rows."""
