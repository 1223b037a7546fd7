"""Deep research: an agent that searches, opens pages and answers, with long-tailed tool latencies."""
