"""Comparing the replicas of partitions with each other: asking each for what it has, and finding where they differ."""
