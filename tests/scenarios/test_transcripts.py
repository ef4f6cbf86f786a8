"""The scripted regressions as transcripts: each `*.txt` beside this file is played, and must show what it says.

After a change that is meant, write them anew, and read the difference:

    make transcripts

A transcript says on top which regression it is and what goes wrong without the rule that it guards.
The language stands in `support/transcripts`: each stage's module has a table of its stimuli.
"""

from __future__ import annotations

import os
import re
from difflib import unified_diff
from pathlib import Path

import pytest

from strandline.testkit.simulation.scheduler import run_seeded
from support.transcripts.player import played
from support.transcripts.text import NotATranscript, gather, read_transcript, spread, write_transcript

SEED = 22
"""Of the order in which tasks run that can run at once: whom of two nodes a race chooses is written in transcripts."""
HERE = Path(__file__).parent
TRANSCRIPTS = sorted(HERE.glob("*.txt"))
ARE_WRITTEN_ANEW = bool(os.environ.get("REWRITE_TRANSCRIPTS"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_a_transcript_shows(path: Path) -> None:
    text = path.read_text()
    steps = read_transcript(text)
    shown = write_transcript(run_seeded(SEED, lambda clock: played(steps)))
    if ARE_WRITTEN_ANEW:
        path.write_text(shown)
        return
    if shown != text:
        difference = unified_diff(text.splitlines(), shown.splitlines(), path.name, "as it is now", lineterm="")
        raise AssertionError("\n".join(["it shows something else:", *difference]))


def test_each_of_the_22_regressions_has_one_that_names_it_and_the_invariants() -> None:
    heads = [re.match(r"# R(\d+) \(.*invariants? \d+", path.read_text().replace("\n# ", " ")) for path in TRANSCRIPTS]
    assert all(heads)
    assert {int(head[1]) for head in heads if head} == set(range(1, 23))


def test_a_line_that_is_neither_stimulus_nor_effect_is_refused() -> None:
    for text in ("> kill A\nA: down\n", "    A: down\n", "> kill A\n\n    A: down\n"):
        with pytest.raises(NotATranscript):
            read_transcript(text)


def test_values_that_count_on_are_written_as_one() -> None:
    words = ["m8", "m9", "m10", "n1", "n2", "x"]
    assert gather(words) == ["m8..m10", "n1", "n2", "x"]
    assert spread(gather(words)) == words
