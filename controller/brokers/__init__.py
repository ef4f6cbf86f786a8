"""Brokers that come and go, what they answer to their orders, and those that are about to leave."""
