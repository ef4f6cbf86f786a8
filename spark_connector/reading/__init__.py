"""From options to rows: the ranges of offsets that tasks read, and their records as Arrow batches."""
