"""In-memory network, disk and ZooKeeper for tests."""
