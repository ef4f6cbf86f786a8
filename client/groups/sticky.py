"""Assignments that are even and move as little as they can: the sticky assignor, and the one that gives up in order.

1. Who owns what, by what the members say (`_claims`): the newest generation wins, and where two members claim the same
   of the same generation neither has it.
2. Each member keeps what it owns and still subscribes to.
3. What is left goes to the subscriber that has the least, partitions with the fewest subscribers first.
4. While a member has two partitions or more above somebody else who subscribes to one of their topics, one moves there:
   rather one of step 3 than one that was owned. That ends, because each move makes the sum of squares smaller.

So members with equal subscriptions differ by one at most, and only what evenness asks for moves. Kafka's classes
promise the same and come to it in other steps, thus to other choices between what is equally good; the leader alone
assigns, so members of different clients may share a group. The cooperative assignor is done after two rounds; where
subscriptions differ step 4 may find more to even out by then (three rounds at most in 20 000 random groups).

Steps 3 and 4 look at *classes*: topics with the same subscribers are alike, so one heap per class finds the least and
the most loaded. With equal subscriptions there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

from strandline.client.groups.subscribers import in_order, subscribers
from strandline.protocol.consumer_protocol import (
    NO_GENERATION,
    InvalidConsumerData,
    Subscription,
    decode_cooperative_data,
    decode_sticky_data,
)
from strandline.protocol.types import TopicPartition

Owned = tuple[Sequence[TopicPartition], int]
"""What a member says that it owns, and since which generation."""


def assign_stickily(
    members: Mapping[str, Subscription], partitions: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """By what members had before they gave it up, which stands in their user data (KIP-54)."""
    return _balanced(members, partitions, _claims(members, _had_before))


def assign_cooperatively(
    members: Mapping[str, Subscription], partitions: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """By what members still own. What moves is withheld from its new owner: the old one learns that it has to give it
    up, and joins again when it has; then it is free (KIP-429)."""
    claims = _claims(members, _owns_now)
    return {
        member_id: [each for each in given if each not in claims or claims[each].owner == member_id]
        for member_id, given in _balanced(members, partitions, claims).items()
    }


# --- 1. Who owns what ------------------------------------------------------------------------------------------------


class _Claim(NamedTuple):
    """`owner` None: two members say that they own it since the same generation."""

    owner: str | None
    generation: int


def _claims(
    members: Mapping[str, Subscription], said_by: Callable[[Subscription], Owned]
) -> dict[TopicPartition, _Claim]:
    """The newest claim to each partition that anybody claims."""
    newest: dict[TopicPartition, _Claim] = {}
    for member_id in sorted(members):
        owned, generation = said_by(members[member_id])
        claim, disputed = _Claim(member_id, generation), _Claim(None, generation)
        for partition in dict.fromkeys(owned):
            other = newest.get(partition)
            if other is None or other.generation < generation:
                newest[partition] = claim
            elif other.generation == generation:
                newest[partition] = disputed
    return newest


def _had_before(subscription: Subscription) -> Owned:
    if not subscription.user_data:
        return (), NO_GENERATION
    try:
        return decode_sticky_data(subscription.user_data)
    except InvalidConsumerData:
        return (), NO_GENERATION


def _owns_now(subscription: Subscription) -> Owned:
    """The generation stands in the user data where a client's subscriptions have no field for it."""
    generation = subscription.generation_id
    if generation < 0 and subscription.user_data:
        try:
            generation = decode_cooperative_data(subscription.user_data)
        except InvalidConsumerData:
            generation = NO_GENERATION
    return subscription.owned_partitions, max(generation, NO_GENERATION)


# --- 2. to 4. --------------------------------------------------------------------------------------------------------


class _Class:
    """Topics with the same subscribers. `held`: what each of these (by its place in the order) has of these topics;
    what it owned comes first, so that the last one is the first to move."""

    __slots__ = ("held", "places", "topics")

    def __init__(self, places: Sequence[int]) -> None:
        self.places = places
        self.topics: list[str] = []
        self.held: dict[int, list[TopicPartition]] = {place: [] for place in places}


def _balanced(
    members: Mapping[str, Subscription], partitions: Mapping[str, int], claims: Mapping[TopicPartition, _Claim]
) -> dict[str, list[TopicPartition]]:
    order = in_order(members)
    place_of = {member_id: place for place, member_id in enumerate(order)}
    loads = [0] * len(order)
    classes = _classes(subscribers(members, partitions, order))
    left = [_keep(each, partitions, claims, place_of, loads) for each in classes]
    for each, unowned in zip(classes, left, strict=True):
        _fill(each, unowned, loads)
    _even_out(classes, loads)
    given: list[list[TopicPartition]] = [[] for _ in order]
    for each in classes:
        for place, held in each.held.items():
            given[place] += held
    return {member_id: sorted(given[place]) for place, member_id in enumerate(order)}


def _classes(subscribed: Mapping[str, tuple[int, ...]]) -> list[_Class]:
    """`subscribed`: topic → places. Those with the fewest subscribers first, since they have the least choice."""
    found: dict[tuple[int, ...], _Class] = {}
    for topic, places in sorted(subscribed.items()):
        if places not in found:
            found[places] = _Class(places)
        found[places].topics.append(topic)
    return sorted(found.values(), key=lambda each: len(each.places))


def _keep(
    each: _Class,
    partitions: Mapping[str, int],
    claims: Mapping[TopicPartition, _Claim],
    place_of: Mapping[str, int],
    loads: list[int],
) -> list[TopicPartition]:
    """What nobody of the class owns."""
    unowned = []
    for topic in each.topics:
        for number in range(partitions[topic]):
            partition = TopicPartition(topic, number)
            claim = claims.get(partition)
            place = None if claim is None or claim.owner is None else place_of[claim.owner]
            if place is None or place not in each.held:
                unowned.append(partition)
            else:
                each.held[place].append(partition)
                loads[place] += 1
    return unowned


def _fill(each: _Class, unowned: Sequence[TopicPartition], loads: list[int]) -> None:
    least = [(loads[place], place) for place in each.places]
    heapify(least)
    for partition in unowned:
        load, place = least[0]
        each.held[place].append(partition)
        loads[place] = load + 1
        heapreplace(least, (load + 1, place))


def _even_out(classes: Sequence[_Class], loads: list[int]) -> None:
    """Class by class; one is looked at again when another one has changed what a member of it has."""
    classes_of: list[list[_Class]] = [[] for _ in loads]
    for each in classes:
        for place in each.places:
            classes_of[place].append(each)
    waiting = dict.fromkeys(classes)
    while waiting:
        each = next(iter(waiting))
        changed = _move_within(each, loads)
        waiting.update((other, None) for place in changed for other in classes_of[place])
        del waiting[each]


def _move_within(each: _Class, loads: list[int]) -> dict[int, None]:
    """From who has the most and has something of this class to who has the least, until they differ by one; returns
    whose load changed. An entry of a heap counts while it tells the load that its member has now."""
    changed: dict[int, None] = {}
    least = [(loads[place], place) for place in each.places]
    most = [(-loads[place], -place) for place, held in each.held.items() if held]
    if not most or -min(most)[0] - min(least)[0] < 2:
        return changed
    heapify(least)
    heapify(most)
    while most:
        (low, taker), (minus_high, minus_giver) = least[0], most[0]
        giver, high = -minus_giver, -minus_high
        if low != loads[taker]:
            heappop(least)
        elif high != loads[giver] or not each.held[giver]:
            heappop(most)
        elif high - low < 2:
            break
        else:
            each.held[taker].append(each.held[giver].pop())
            for place, step in ((giver, -1), (taker, 1)):
                loads[place] += step
                heappush(least, (loads[place], place))
                heappush(most, (-loads[place], -place))
                changed[place] = None
    return changed
