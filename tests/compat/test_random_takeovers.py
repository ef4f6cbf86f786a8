"""Random sequences of takeovers, each from its seed; `make soak-takeovers` runs more than `make compat`."""

from __future__ import annotations

import os
import re

import pytest

from compat.real_kafka import Site
from compat.takeovers import Sequence, told

FIRST, LAST = map(int, os.environ.get("STRANDLINE_TAKEOVERS", "1-2").split("-"))
TURNS = 4
COMPLAINTS = re.compile(r"isvalid: false|invalid bytes|mismatch|Exception|corrupt|out of order", re.IGNORECASE)


@pytest.mark.parametrize("seed", range(FIRST, LAST + 1))
def test_nothing_is_lost_or_shown_wrongly_over_a_random_sequence_of_takeovers(new_site, run_kafka, seed: int) -> None:
    site: Site = new_site(directories=2)
    sequence = Sequence(site, seed)
    with told(sequence):
        sequence.run(TURNS)
        logs = ",".join(str(path) for where in site.directories for path in sorted(where.glob("*/*.log")))
        output = run_kafka("kafka.tools.DumpLogSegments", "--deep-iteration", "--files", logs)
        assert not COMPLAINTS.search(output), COMPLAINTS.search(output)
