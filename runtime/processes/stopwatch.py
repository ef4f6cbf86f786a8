"""A clock for who measures how long a thread has been at something, outside of any event loop."""

from __future__ import annotations

import time

now_s = time.monotonic
"""Seconds since some moment; never goes back."""
