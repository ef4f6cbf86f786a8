"""How each fault of a script is done to a running world, and undone."""
