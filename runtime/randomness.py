"""Randomness in production: one stream per purpose, seeded by the operating system."""

from __future__ import annotations

import random


def system_random(purpose: str) -> random.Random:
    """A fresh stream that nobody can foresee or share; the purpose only matters in the simulation."""
    del purpose
    return random.Random()
