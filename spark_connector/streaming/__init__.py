"""Topics as streams: how far a query has come, how much a trigger takes, and what Spark asks for."""
