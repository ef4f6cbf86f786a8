"""Two logs and nothing else: where does one that follows the other part from it?

| stimulus | what happens |
|---|---|
| part in=e3 leader=e0:10,e3:12 follower=e0:15 | the leader of epoch 3 has 0..10 of epoch 0 and 10..12 of epoch 3 |
"""

from __future__ import annotations

import re

from support.parting_logs import FOLLOWER, LEADER, Epochs, a_partition, converge
from support.transcripts.stage import Table, Verb

_ENTRY = re.compile(r"e(\d+):(\d+)")


def read_epochs(text: str) -> Epochs:
    return tuple((int(epoch), int(end)) for epoch, end in _ENTRY.findall(text))


async def part(stage: Table, words: list[str], options: dict[str, str]) -> None:
    leader_epoch = int(options["in"].removeprefix("e"))
    leader = a_partition(LEADER, read_epochs(options["leader"]), leader_epoch)
    follower = a_partition(FOLLOWER, read_epochs(options["follower"]), leader_epoch)
    for answer in converge(leader, follower):
        asked = f"the follower ends at {answer.asked_end} in e{answer.asked_epoch}"
        told = (
            f"the leader's e{answer.epoch} ends at {answer.end_offset}" if answer.epoch >= 0 else "the leader has none"
        )
        stage.tell(f"{asked}, {told}: cut to {answer.cut_to}")
    stage.tell(f"they agree from {follower.log.log_end_offset} on")


VERBS: dict[str, Verb] = {"part": part}
