"""What a mutant is."""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """One line of ours, broken: `before` stands exactly once in `file` (from the root) and becomes `after`.

    `killed_by`: file (from tests/scenarios) and beginning of the names of the tests of which one must fail. Where
    many cases would pass before, the one that fails stands behind in brackets.
    """

    name: str
    file: str
    before: str
    after: str
    killed_by: tuple[str, str]


def transcript(name: str) -> tuple[str, str]:
    """Killed by the transcript of this name, which shows other effects then."""
    return ("test_transcripts.py", f"test_a_transcript_shows[{name}]")
