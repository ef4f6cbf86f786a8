"""Seeds that CI runs: no finding, and the same digest in another process with another order of hashes.

`strandline simulate --seeds 1-1000 --until 600s` runs more of them, as nobody does before each commit.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

import pytest

from strandline.testkit.simulation.counters import ALWAYS_REACHED

SEEDS, BATCH, LENGTH_S = 50, 10, 120.0
RARER = {
    "expansions refused: who would join was restarted",
    "indexes rebuilt",
    "unclean elections by the longest log",
    "eligible replicas elected",
    "disks were full",
    "full disks were used again",
    "ISR writes met another leader or epoch",
    "a file was not opened for want of descriptors",
}
RARER_PLACES = ("a foreign disk was refused: ", "no room: ", "ended at ", "killed at ")
"""So few seeds need not reach these: `strandline simulate --seeds` tells of more of them what they did not."""
sometimes: Counter[str] = Counter()


@pytest.mark.parametrize("first", range(1, SEEDS, BATCH))
def test_nothing_is_found_and_two_processes_see_the_same(first: int) -> None:
    """Another digest is a finding."""
    seeds = f"{first}-{first + BATCH - 1}"
    words = f"simulate --seeds {seeds} --until {LENGTH_S:g}s --twice --processes 2 --output json".split()
    done = subprocess.run([sys.executable, "-m", "strandline.cli", *words], stdout=subprocess.PIPE, text=True)
    runs = json.loads(done.stdout)["runs"]
    assert [run["findings"] for run in runs] == [[]] * BATCH
    for run in runs:
        sometimes.update(run["sometimes"])


def test_these_seeds_reach_what_the_oracles_are_there_for() -> None:
    """After the others, in the same process."""
    assert not [name for name in ALWAYS_REACHED if not sometimes[name] and not is_rarer(name)]


def is_rarer(name: str) -> bool:
    return name in RARER or name.startswith(RARER_PLACES)
