"""What only our own tests need: sites, machines, crash points, bad input."""
