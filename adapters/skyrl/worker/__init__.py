"""SkyRL's child half: runs inside SkyRL's own environment."""
