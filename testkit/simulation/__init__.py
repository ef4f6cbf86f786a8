"""Whole clusters on virtual time from one seed, with faults, oracles and a history that is checked."""

TRIED_TRIO = "0.35.0"
"""The simulator reaches into trio (`clock`, `node_tasks`, `scheduler`, `shortcuts`): with another one a run may fail,
or not be the same again."""
