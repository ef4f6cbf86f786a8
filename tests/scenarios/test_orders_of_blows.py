"""Every order of kill, orderly stop, power loss, wipe and return, for three replicas of one partition.

No committed record is lost while a whole copy exists, whoever leads; or the partition is offline, and an error line
names who is missed. `testkit/trial.py` says what is looked at after each move, `trial_search.py` how so many orders are
played; `make soak` plays longer ones.
"""

from __future__ import annotations

import os
import sys

import pytest

from strandline.testkit.trial import trial
from strandline.testkit.trial_search import TrialSearch

LENGTH = int(os.environ.get("STRANDLINE_BLOWS", "2"))
VARIANTS = [("balanced", True), ("none", False)]
"""Strategy of recovery; are the dead missed at once, or do their sessions outlive them?"""
if LENGTH > 2:
    VARIANTS += [("none", True), ("balanced", False)]


@pytest.mark.parametrize(("strategy", "is_patient"), VARIANTS)
@pytest.mark.parametrize("minimum", [1, 2])
async def test_no_order_of_blows_loses_what_a_replica_still_has(
    minimum: int, strategy: str, is_patient: bool, autojump_clock
) -> None:
    async with trial([3, 1, 2], minimum=minimum, strategy=strategy, is_patient=is_patient) as started:
        found = await TrialSearch(started, LENGTH, may_stay_offline=strategy == "none").run()
        sys.stdout.write(f"{found.moves} moves and {found.endings} endings, {len(found.states)} states that differ\n")
        assert not found.broken, "\n".join(sorted(found.broken, key=len)[:20])
