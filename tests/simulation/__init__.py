"""The simulator at work: seeds, their digests, and mutants that its oracles catch."""
