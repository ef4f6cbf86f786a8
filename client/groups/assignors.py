"""Who of a group gets which partitions: Kafka's four ways, as pure functions.

The leader of a group calls `ASSIGNORS[name].assign(members, partitions)` with what each member said and how many
partitions each topic has, and gets what each member is to have: each partition of each topic that somebody subscribes
to, once, and for each member a list that is sorted and may be empty. The result depends on the arguments' contents
alone. It is COOPERATIVE that leaves something out: what another member still owns, until that one has given it up and
the group is assigned anew.

Source: Kafka's RangeAssignor, RoundRobinAssignor, AbstractStickyAssignor and
CooperativeStickyAssignor of 3.9, KIP-54, KIP-341, KIP-345, KIP-429. Where replicas lie plays no part here: KIP-881's
matching of racks, which Kafka has by default where consumers say their rack, changes where partitions are read from and
not what is promised.
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from strandline.client.groups.sticky import assign_cooperatively, assign_stickily
from strandline.client.groups.subscribers import in_order, subscribers
from strandline.protocol.consumer_protocol import Subscription, encode_cooperative_data, encode_sticky_data
from strandline.protocol.types import TopicPartition

Assignments = dict[str, list[TopicPartition]]
"""Member id → what it is given, sorted."""


class RebalanceProtocol(enum.Enum):
    EAGER = "eager"
    """A member gives up everything before it joins again."""
    COOPERATIVE = "cooperative"
    """A member keeps what it has, and gives up what it is no longer given (KIP-429)."""


@dataclass(frozen=True, slots=True)
class Assignor:
    """`assign`: by (member id → subscription, topic → number of partitions); topics that are not there, or have none,
    are left out. `user_data`: for a subscription, by (what the member owns, or owned last, its generation)."""

    name: str
    protocol: RebalanceProtocol
    assign: Callable[[Mapping[str, Subscription], Mapping[str, int]], Assignments]
    user_data: Callable[[Sequence[TopicPartition], int], bytes | None]


def assign_ranges(members: Mapping[str, Subscription], partitions: Mapping[str, int]) -> Assignments:
    """Of each topic a range to each subscriber, the first of them one more where it does not come out even. Topics with
    as many partitions and the same subscribers are thus cut alike: they can be joined partition by partition."""
    assigned: Assignments = {member_id: [] for member_id in members}
    order = in_order(members)
    for topic, places in sorted(subscribers(members, partitions, order).items()):
        least, left_over = divmod(partitions[topic], len(places))
        start = 0
        for turn, place in enumerate(places[: partitions[topic]]):
            end = start + least + (turn < left_over)
            assigned[order[place]] += [TopicPartition(topic, partition) for partition in range(start, end)]
            start = end
    return assigned


def assign_round_robin(members: Mapping[str, Subscription], partitions: Mapping[str, int]) -> Assignments:
    """All partitions, in order, to one subscriber after the other. Who does not subscribe to a topic is passed over,
    and is not made up for it."""
    assigned: Assignments = {member_id: [] for member_id in members}
    order = in_order(members)
    turn = 0
    for topic, places in sorted(subscribers(members, partitions, order).items()):
        at = bisect_left(places, turn)
        for partition in range(partitions[topic]):
            at %= len(places)
            assigned[order[places[at]]].append(TopicPartition(topic, partition))
            turn = places[at] + 1
            at += 1
    return assigned


ASSIGNORS: Mapping[str, Assignor] = {
    assignor.name: assignor
    for assignor in (
        Assignor("range", RebalanceProtocol.EAGER, assign_ranges, lambda owned, generation: None),
        Assignor("roundrobin", RebalanceProtocol.EAGER, assign_round_robin, lambda owned, generation: None),
        Assignor("sticky", RebalanceProtocol.EAGER, assign_stickily, encode_sticky_data),
        Assignor(
            "cooperative-sticky",
            RebalanceProtocol.COOPERATIVE,
            assign_cooperatively,
            lambda owned, generation: encode_cooperative_data(generation),
        ),
    )
}
"""By name, which is that of the protocol in JoinGroup: members of all clients have to mean the same by it."""
