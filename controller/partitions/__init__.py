"""States of partitions: planned, written, announced, recovered, waited for."""
