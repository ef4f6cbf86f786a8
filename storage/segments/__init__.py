"""The segments of a log: batches in files, their indexes, and reading them."""
