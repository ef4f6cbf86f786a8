"""How evenly a cluster's load lies on its brokers, and what to move where it does not."""
