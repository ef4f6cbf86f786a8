"""What a check of a cluster finds: "" where nothing is wrong, else what is, and where, as text; or one of these."""

from __future__ import annotations

from typing import NamedTuple


class Unknown(NamedTuple):
    why: str


class Advice(NamedTuple):
    """What a check of faults found that is none yet."""

    text: str


Found = str | Unknown | Advice
