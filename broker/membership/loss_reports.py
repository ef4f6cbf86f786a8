"""What ZooKeeper credits a broker with, and how a broker that may have lost data renounces it (invariant 22).

A member of an ISR, or an eligible replica, counts as one that has everything which is committed. A broker that may have
lost a suffix takes that back, partition by partition, before it registers:

    in the ISR, with others    it leaves: a new leader epoch, also under the same leader, which would go on with an ISR
                               that is no more; leaderless where it led. The controller tells whoever leads.
    alone in the ISR           it stays, since an ISR is never empty, and is marked `lossy`: it does not lead unless an
                               eligible replica led before, or its log turned out to be the longest of all
    eligible                   it is not any more

A state that cannot be understood is looked at again until it can be. The controller does the same when it takes such a
state in, of a broker whose registration says that it started so: whoever comes first.

What is written here stands until a leader has taken the replica back into the ISR, having compared their logs: no stop
in order, no new session and no new controller makes it forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog
import trio

from strandline.broker.patience import RETRY_DELAY_S
from strandline.protocol.znodes import TOPICS_PATH, InvalidZnode, PartitionStateZnode
from strandline.runtime.coordination import (
    MATCH_ANY_VERSION,
    Check,
    Coordination,
    CoordinationError,
    Operation,
    SetData,
    Znode,
)

ATTEMPTS_PER_LINE = 50
"""One line in so many attempts says that states move under it: each 10 s."""


async def paths_of_states(coordination: Coordination) -> list[str]:
    """Of all partitions. ConnectionLost, SessionExpired."""
    topics = await coordination.children(TOPICS_PATH)
    partition_lists = await coordination.children_many([f"{TOPICS_PATH}/{topic}/partitions" for topic in topics])
    return [
        PartitionStateZnode.path(topic, int(index))
        for topic, indexes in zip(topics, partition_lists, strict=True)
        for index in indexes or ()
        if index.isascii() and index.isdecimal() and len(index) < 10
    ]


async def renounce_claims(
    coordination: Coordination, broker_id: int, paths: Sequence[str], log: structlog.typing.FilteringBoundLogger
) -> dict[str, str]:
    """Write all of that. paths: of the states. Returns which of them could not be understood, and why: they may still
    credit this broker. ConnectionLost, SessionExpired: not known what was written; it may be repeated."""
    topics = list(dict.fromkeys(path.split("/")[3] for path in paths))
    renounced: dict[str, None] = {}
    unreadable: dict[str, str] = {}
    attempts = 0
    while paths:
        lives = await _lives(coordination, topics)  # before the states: one that is made anew in between has another id
        writes: dict[str, list[Operation]] = {}
        for path, znode in zip(paths, await coordination.get_many(paths), strict=True):
            try:
                state = None if znode is None else renounced_state(path, znode, broker_id)
            except InvalidZnode as error:
                unreadable[path] = str(error)
                continue
            if znode is not None and state is not None:
                writes[path] = [*lives[path.split("/")[3]], SetData(path, state.encode(), znode.stat.version)]
        results = await coordination.multi_many(list(writes.values()))
        paths = [path for path, result in zip(writes, results, strict=True) if isinstance(result, CoordinationError)]
        renounced.update((path, None) for path in writes if path not in paths)
        if paths:
            if attempts % ATTEMPTS_PER_LINE == 0:
                why = next(str(result) for result in results if isinstance(result, CoordinationError))
                log.warning("states moved while isrs were left, again", partitions=len(paths), first=paths[0], why=why)
            attempts += 1
            await trio.sleep(RETRY_DELAY_S)
    if renounced:
        log.warning("left isrs after possible data loss", partitions=len(renounced))
    return unreadable


async def _lives(coordination: Coordination, topics: Sequence[str]) -> dict[str, list[Operation]]:
    """Topic → the check that it is still this one, by the znode named by its id. One that another tool made, and no
    controller of ours has seen yet, has none."""
    below = await coordination.children_many([f"{TOPICS_PATH}/{topic}" for topic in topics])
    return {
        topic: [
            Check(f"{TOPICS_PATH}/{topic}/{child}", MATCH_ANY_VERSION)
            for child in children or ()
            if child != "partitions"
        ]
        for topic, children in zip(topics, below, strict=True)
    }


def renounced_state(path: str, znode: Znode, broker_id: int) -> PartitionStateZnode | None:
    """The state without the claim of this broker; None where it has none. InvalidZnode, also where that would take a
    leader epoch and none is left: nobody could read it again."""
    state = PartitionStateZnode.decode(path, znode.data).without_claim(broker_id)
    if state is not None and state.leader_epoch > PartitionStateZnode.LAST_EPOCH:
        raise InvalidZnode(path, f"no leader epoch is left after {state.leader_epoch - 1}")
    return state
