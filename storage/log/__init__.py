"""One log: appending, reading, flushing, and cutting at both ends."""
