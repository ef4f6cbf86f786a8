"""What should be written for each partition, decided from the context alone."""
