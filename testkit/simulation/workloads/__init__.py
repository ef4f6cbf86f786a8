"""What clients and operators do to a cluster while it is struck; each notes what it was told in the history."""
