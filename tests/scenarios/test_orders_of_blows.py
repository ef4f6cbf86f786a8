"""Every order of kill, orderly stop, power loss, wipe and return, for three replicas of one partition.

No committed record is lost while a whole copy exists, whoever leads; or the partition is offline, and an error line
names who is missed. `tests/support/trial.py` says what is looked at after each move. So many orders are played on bare
clusters (`tests/support/bare_cluster.py`: the decisions of brokers without what carries them), and some on whole
brokers, too, which must come to the same after each move. `make soak` plays longer ones.
"""

from __future__ import annotations

import os
import sys

import pytest

from support.bare_search import Variant, play_again, search, started_trial
from support.bare_snapshots import freeze, thaw
from support.trial import Trial, parse_moves, trial
from support.trial_search import TrialSearch, standing
from support.trial_states import fingerprint

LENGTH = int(os.environ.get("STRANDLINE_BLOWS", "2"))
IS_SOAK = LENGTH > 2
REPLICAS = [3, 1, 2]
LONG_ORDERS = [
    "kill 1, kill 2, power 3, return 3, return 1, return 2",
    "kill 1, power 3, stop 2, return 1, return 3, return 2",
    "stop 3, stop 1, power 2, return 2, stop 2, return 2",
    "kill 3, kill 1, wipe 3, power 1, power 2, return 2",
    "power 1, wipe 1, stop 2, return 1, power 3, return 3",
    "kill 2, stop 1, power 3, return 3, kill 3, return 1",
    "power 3, power 1, power 2, return 1, return 2, return 3",
    "kill 3, return 3, kill 1, stop 3, return 1, kill 2",
]


@pytest.mark.parametrize("is_patient", [True, False])
@pytest.mark.parametrize("strategy", ["balanced", "none"])
@pytest.mark.parametrize("minimum", [1, 2])
def test_no_order_of_blows_loses_what_a_replica_still_has(minimum: int, strategy: str, is_patient: bool) -> None:
    """Where sessions end late, their ends stand between the moves, and orders are shorter."""
    length = LENGTH if is_patient else (LENGTH + 1) // 2
    variant = Variant(minimum, strategy, is_patient)
    found = search(variant, length, processes=os.cpu_count() or 1, progress=IS_SOAK)
    sys.stdout.write(f"{variant}, length {length}: {found}\n")
    assert not found.broken, "\n".join(sorted(found.broken, key=len)[:20])


@pytest.mark.parametrize("strategy", ["balanced", "none"])
@pytest.mark.parametrize("minimum", [1, 2])
async def test_whole_brokers_come_to_the_same_as_bare_ones(minimum: int, strategy: str, autojump_clock) -> None:
    """All orders of one length."""
    variant = Variant(minimum, strategy, is_patient=True)
    async with trial(REPLICAS, minimum=minimum, strategy=strategy, is_patient=True) as started:
        search = TrialSearch(started, 2 if IS_SOAK else 1, may_stay_offline=variant.may_stay_offline)
        found = await search.run()
    assert not found.broken, "\n".join(sorted(found.broken, key=len)[:20])
    assert not [order for order, stood in found.stood.items() if await play_again(variant, order) != stood]


@pytest.mark.parametrize("is_patient", [True, False])
async def test_trials_that_stand_alike_go_on_alike(is_patient: bool, autojump_clock) -> None:
    """What the search relies on, for all orders of two moves: who stands alike does so after any move more."""
    begun = freeze(await started_trial(Variant(2, "balanced", is_patient)))
    alike: dict[str, list[bytes]] = {}
    for once in (await after_each_move(begun)).values():
        for twice in (await after_each_move(freeze(once))).values():
            alike.setdefault(fingerprint(twice), []).append(freeze(twice))
    merged = [states for states in alike.values() if len(states) > 1]
    assert merged
    for first, *others in merged:
        expected = {move: fingerprint(after) for move, after in (await after_each_move(first)).items()}
        for other in others:
            found = {move: fingerprint(after) for move, after in (await after_each_move(other)).items()}
            assert found == expected, str(await thaw(other))


async def after_each_move(frozen: bytes) -> dict[str, Trial]:
    found = {}
    for move in (await thaw(frozen)).legal_moves():
        found[str(move)] = await thaw(frozen)
        await found[str(move)].play(move)
    return found


@pytest.mark.parametrize("order", LONG_ORDERS)
async def test_whole_brokers_come_to_the_same_after_many_blows(order: str, autojump_clock) -> None:
    bare = await started_trial(Variant(2, "balanced", is_patient=True))
    async with trial(REPLICAS, minimum=2, strategy="balanced", is_patient=True) as whole:
        for move in parse_moves(order):
            await whole.play(move)
            await bare.play(move)
            assert await standing(whole) == await standing(bare), str(whole)
