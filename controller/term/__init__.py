"""From a won election to its end: one term of a controller."""
