"""A log from its folder: what is found there, judged, and made whole (invariant 21)."""
