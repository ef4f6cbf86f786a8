"""How a broker comes to belong to its cluster, what it owns up to, and how it leaves."""
