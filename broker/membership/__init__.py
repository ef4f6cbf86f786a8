"""How a broker comes to belong to its cluster, and what it owns up to."""
