"""Kafka's own wire format: frames and bodies as Kafka clients write and read them."""
