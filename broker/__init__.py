"""The data plane and the daemon: network pipeline, request handlers, replication."""
