"""What a regression check says: markdown for a page or a comment, JUnit XML for a CI, and the baseline in words."""
