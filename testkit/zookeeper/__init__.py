"""A ZooKeeper in memory, and its clients."""
