"""Producer, consumer, admin."""
