"""Searches that try every case: `make test` tries a sample of them, `make soak` all."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

IS_SOAK = bool(os.environ.get("STRANDLINE_SOAK_MINUTES"))
"""Read once: tests do not see the variables of whoever starts them."""

T = TypeVar("T")


def sampled(cases: Sequence[T], share: int) -> Sequence[T]:
    """One in `share` of the cases, the same ones in each run; where the cases are bits of bytes, an odd share comes to
    each place within a byte."""
    return cases if IS_SOAK else cases[share // 2 :: share]
