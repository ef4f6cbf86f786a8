"""Compaction: of each key only the newest record stays (invariant 20).

Read it in this order: `choice` (which log), `cleaner` (the work, in a worker process), `takeover` (what the log does
with the result); `offset_map`, `key_hash`, `columns`, `rewrite`, `grouping`, `output` are its parts, `jobs` its doors.
"""
