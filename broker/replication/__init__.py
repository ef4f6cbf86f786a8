"""Partitions and their replicas: leading, following, who is in sync, what waits for it."""
