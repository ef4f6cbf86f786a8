"""Whole clusters on virtual time from one seed, with faults, oracles and a history that is checked."""
