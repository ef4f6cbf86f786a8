"""Who subscribes to what, in the order in which members get their turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from strandline.protocol.consumer_protocol import Subscription


def in_order(members: Mapping[str, Subscription]) -> list[str]:
    """By `group_instance_id`, and then, without one, by member id: a static member gets the same whatever id it has
    (Kafka's MemberInfo)."""

    def place(member_id: str) -> tuple[bool, str, str]:
        instance = members[member_id].group_instance_id
        return instance is None, instance or "", member_id

    return sorted(members, key=place)


def subscribers(
    members: Mapping[str, Subscription], partitions: Mapping[str, int], order: Sequence[str]
) -> dict[str, tuple[int, ...]]:
    """Of each topic that has partitions: the places in `order` of those who subscribe to it, ascending.

    Most groups have few subscriptions that differ, so these are looked at rather than a thousand members with a
    thousand topics each."""
    alike: dict[tuple[str, ...], list[int]] = {}
    for place, member_id in enumerate(order):
        alike.setdefault(tuple(members[member_id].topics), []).append(place)
    kinds = [(dict.fromkeys(topics), places) for topics, places in alike.items()]
    kinds_of: dict[str, list[int]] = {}
    for kind, (topics, _) in enumerate(kinds):
        for topic in topics:
            if partitions.get(topic, 0) > 0:
                kinds_of.setdefault(topic, []).append(kind)
    found: dict[tuple[int, ...], tuple[int, ...]] = {}
    for key in map(tuple, kinds_of.values()):
        if key not in found:
            found[key] = tuple(sorted(place for kind in key for place in kinds[kind][1]))
    return {topic: found[tuple(key)] for topic, key in kinds_of.items()}
