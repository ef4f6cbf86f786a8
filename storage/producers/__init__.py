"""What idempotent producers have appended to a log."""
