"""What the controller tells brokers, and how it gets there."""
