"""One broker's logs on disk, synchronous."""
