"""Partitions that move to other brokers: what is asked for, written down, and carried out step by step."""
