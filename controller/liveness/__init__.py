"""Whose process is gone, told by its address, which refuses: a hint, long before a session ends."""
