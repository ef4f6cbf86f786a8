"""Who gets which partitions: examples of each assignor, and what holds for any group."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.client.groups.assignors import ASSIGNORS, Assignments, RebalanceProtocol
from strandline.protocol.consumer_protocol import Subscription, decode_subscription, encode_subscription
from strandline.protocol.types import TopicPartition

NAMES = sorted(ASSIGNORS)
STICKY = ("sticky", "cooperative-sticky")
COOPERATIVE = ASSIGNORS["cooperative-sticky"]

topics = st.sampled_from([f"t{number}" for number in range(5)])
partition_counts = st.dictionaries(topics, st.integers(0, 9), max_size=5)
topic_lists = st.lists(topics, unique=True, max_size=5)
member_ids = st.sampled_from([f"m{number}" for number in range(8)])
groups = st.dictionaries(member_ids, topic_lists, min_size=1)


def fresh(group: Mapping[str, list[str]]) -> dict[str, Subscription]:
    return {member: Subscription(names) for member, names in group.items()}


def again(
    name: str, group: Mapping[str, list[str]], owned: Assignments, generation: int = 1
) -> dict[str, Subscription]:
    """What the members say when they join once more, as a leader reads it; who owns nothing yet is new."""
    made = {}
    for member, names in group.items():
        if member not in owned:
            made[member] = Subscription(names)
            continue
        data = ASSIGNORS[name].user_data(owned[member], generation)
        is_kept = ASSIGNORS[name].protocol is RebalanceProtocol.COOPERATIVE
        said = Subscription(names, data, owned[member] if is_kept else (), generation)
        made[member] = decode_subscription(encode_subscription(said))
    return made


def of(topic: str, *partitions: int) -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for partition in partitions]


def everything(assigned: Assignments) -> list[TopicPartition]:
    return sorted(partition for given in assigned.values() for partition in given)


def settled(group: Mapping[str, list[str]], counts: Mapping[str, int], owned: Assignments) -> list[Assignments]:
    """Rounds of the cooperative assignor until one withholds nothing."""
    rounds: list[Assignments] = []
    subscribed = sum(counts.get(topic, 0) for topic in {topic for names in group.values() for topic in names})
    for generation in range(1, 40):
        rounds.append(COOPERATIVE.assign(again(COOPERATIVE.name, group, owned, generation), counts))
        owned = rounds[-1]
        if len(everything(owned)) == subscribed:
            return rounds
    raise AssertionError(f"not settled after {len(rounds)} rounds")


# --- examples --------------------------------------------------------------------------------------------------------


def test_range_gives_the_first_members_more_and_cuts_equal_topics_alike() -> None:
    group = {"b": ["t", "u"], "a": ["t", "u"]}
    assigned = ASSIGNORS["range"].assign(fresh(group), {"t": 3, "u": 3})
    assert assigned == {"a": of("t", 0, 1) + of("u", 0, 1), "b": of("t", 2) + of("u", 2)}


def test_range_leaves_members_out_where_there_are_too_few_partitions() -> None:
    assigned = ASSIGNORS["range"].assign(fresh({"a": ["t"], "b": ["t"], "c": ["t"]}), {"t": 2})
    assert assigned == {"a": of("t", 0), "b": of("t", 1), "c": []}


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_static_members_come_first_in_the_order_of_their_instances(name: str) -> None:
    members = {
        "a": Subscription(["t"]),
        "y": Subscription(["t"], group_instance_id="2"),
        "z": Subscription(["t"], group_instance_id="1"),
    }
    assert ASSIGNORS[name].assign(members, {"t": 3}) == {"z": of("t", 0), "y": of("t", 1), "a": of("t", 2)}


def test_round_robin_goes_on_over_topics_and_passes_over_who_does_not_subscribe() -> None:
    group = {"a": ["t"], "b": ["t", "u"], "c": ["t", "u", "v"]}
    assigned = ASSIGNORS["roundrobin"].assign(fresh(group), {"t": 1, "u": 2, "v": 3})
    assert assigned == {"a": of("t", 0), "b": of("u", 0), "c": of("u", 1) + of("v", 0, 1, 2)}


def test_sticky_gives_more_to_who_has_less_choice_elsewhere() -> None:
    group = {"a": ["t"], "b": ["t", "u"], "c": ["t", "u", "v"]}
    assigned = ASSIGNORS["sticky"].assign(fresh(group), {"t": 1, "u": 2, "v": 3})
    assert assigned == {"a": of("t", 0), "b": of("u", 0, 1), "c": of("v", 0, 1, 2)}


def test_a_chain_of_moves_evens_out_what_no_single_pair_shares() -> None:
    group = {"a": ["t"], "b": ["t", "u"], "c": ["u"]}
    owned = {"a": of("t", 0, 1, 2, 3, 4, 5), "b": [], "c": []}
    assigned = ASSIGNORS["sticky"].assign(again("sticky", group, owned), {"t": 6, "u": 1})
    assert {member: len(given) for member, given in assigned.items()} == {"a": 3, "b": 3, "c": 1}


@pytest.mark.parametrize("name", STICKY)
def test_the_newest_generation_owns_what_two_members_claim(name: str) -> None:
    group = {"a": ["t"], "b": ["t"]}
    members = again(name, group, {"a": of("t", 0, 1)}, 4) | again(name, {"b": ["t"]}, {"b": of("t", 1, 2)}, 5)
    assigned = ASSIGNORS[name].assign(members, {"t": 4})
    assert set(of("t", 1, 2)) <= set(assigned["b"]) and assigned["a"][:1] == of("t", 0)


def test_sticky_gives_what_two_members_of_one_generation_claim_to_either() -> None:
    group = {"a": ["t"], "b": ["t"]}
    both = {"a": of("t", 0), "b": of("t", 0)}
    assert everything(ASSIGNORS["sticky"].assign(again("sticky", group, both), {"t": 2})) == of("t", 0, 1)


def test_cooperative_withholds_what_two_members_of_one_generation_claim_from_both() -> None:
    group = {"a": ["t"], "b": ["t"]}
    both = {"a": of("t", 0), "b": of("t", 0)}
    assert everything(COOPERATIVE.assign(again(COOPERATIVE.name, group, both), {"t": 2})) == of("t", 1)


def test_cooperative_reads_the_generation_from_user_data_where_the_subscription_has_no_field_for_it() -> None:
    late = Subscription(["t"], COOPERATIVE.user_data([], 2), of("t", 0))
    early = Subscription(["t"], COOPERATIVE.user_data([], 1), of("t", 0, 1))
    members = {name: decode_subscription(encode_subscription(each, 1)) for name, each in (("a", early), ("b", late))}
    assert COOPERATIVE.assign(members, {"t": 2}) == {"a": of("t", 1), "b": of("t", 0)}


@pytest.mark.parametrize("name", STICKY)
def test_user_data_that_cannot_be_read_is_none(name: str) -> None:
    members = {"a": Subscription(["t"], b"\xff"), "b": Subscription(["t"], b"\xff" * 9)}
    assert everything(ASSIGNORS[name].assign(members, {"t": 2})) == of("t", 0, 1)


# --- what holds for any group ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@given(group=groups, counts=partition_counts)
def test_every_partition_is_given_once_to_a_subscriber(name: str, group, counts) -> None:
    assigned = ASSIGNORS[name].assign(fresh(group), counts)
    subscribed = {topic for names in group.values() for topic in names}
    assert everything(assigned) == sorted(
        TopicPartition(topic, partition) for topic in subscribed for partition in range(counts.get(topic, 0))
    )
    assert set(assigned) == set(group)
    assert all(partition.topic in group[member] for member, given in assigned.items() for partition in given)
    assert all(first < second for given in assigned.values() for first, second in pairwise(given))


@pytest.mark.parametrize("name", NAMES)
@given(group=groups, counts=partition_counts, order=st.randoms(use_true_random=False))
def test_the_order_in_which_members_and_topics_come_makes_no_difference(name: str, group, counts, order) -> None:
    assigned = ASSIGNORS[name].assign(fresh(group), counts)
    shuffled = list(group)
    order.shuffle(shuffled)
    turned = {member: group[member][::-1] for member in shuffled}
    assert ASSIGNORS[name].assign(fresh(turned), dict(reversed(counts.items()))) == assigned


@pytest.mark.parametrize("name", ["roundrobin", *STICKY])
@given(members=st.sets(member_ids, min_size=1), names=topic_lists, counts=partition_counts)
def test_equal_subscriptions_differ_by_one_at_most(name: str, members, names, counts) -> None:
    sizes = [len(given) for given in ASSIGNORS[name].assign(fresh(dict.fromkeys(members, names)), counts).values()]
    assert max(sizes) - min(sizes) <= 1


@given(counts=partition_counts, before=groups, after=groups)
def test_no_move_would_make_a_sticky_assignment_more_even(counts, before, after) -> None:
    owned = ASSIGNORS["range"].assign(fresh(before), counts)
    assigned = ASSIGNORS["sticky"].assign(again("sticky", after, owned), counts)
    for has in assigned.values():
        for taker, names in after.items():
            shared = any(partition.topic in names for partition in has)
            assert not shared or len(has) - len(assigned[taker]) < 2


@given(group=groups, counts=partition_counts)
def test_sticky_changes_nothing_where_nothing_changed(group, counts) -> None:
    owned = ASSIGNORS["sticky"].assign(fresh(group), counts)
    assert ASSIGNORS["sticky"].assign(again("sticky", group, owned), counts) == owned
    assert COOPERATIVE.assign(again(COOPERATIVE.name, group, owned), counts) == owned


@given(members=st.sets(member_ids, min_size=2), names=topic_lists, counts=partition_counts, data=st.data())
def test_of_a_member_that_leaves_only_its_own_partitions_move(members, names, counts, data) -> None:
    group = dict.fromkeys(sorted(members), names)
    owned = ASSIGNORS["sticky"].assign(fresh(group), counts)
    del group[data.draw(st.sampled_from(sorted(members)))]
    assigned = ASSIGNORS["sticky"].assign(again("sticky", group, owned), counts)
    assert all(set(owned[member]) <= set(assigned[member]) for member in group)


@given(members=st.sets(member_ids, min_size=1, max_size=7), names=topic_lists, counts=partition_counts)
def test_to_a_member_that_joins_only_its_share_moves(members, names, counts) -> None:
    owned = ASSIGNORS["sticky"].assign(fresh(dict.fromkeys(members, names)), counts)
    group = dict.fromkeys([*members, "new"], names)
    assigned = ASSIGNORS["sticky"].assign(again("sticky", group, owned), counts)
    assert all(set(assigned[member]) <= set(owned[member]) for member in members)
    assert len(assigned["new"]) == len(everything(owned)) // len(group)


@given(counts=partition_counts, before=groups, after=groups)
def test_cooperative_gives_nothing_that_another_member_still_owns(counts, before, after) -> None:
    owned = ASSIGNORS["range"].assign(fresh(before), counts)
    owned = {member: given for member, given in owned.items() if member in after}
    for assigned in settled(after, counts, owned):
        for member, has in assigned.items():
            of_others = {partition for other, had in owned.items() if other != member for partition in had}
            assert not of_others & set(has)
        owned = assigned


@given(
    counts=partition_counts,
    names=topic_lists,
    before=st.sets(member_ids, min_size=1),
    after=st.sets(member_ids, min_size=1),
)
def test_cooperative_is_settled_after_two_rounds(counts, names, before, after) -> None:
    owned = ASSIGNORS["range"].assign(fresh(dict.fromkeys(before, names)), counts)
    owned = {member: given for member, given in owned.items() if member in after}
    assert len(settled(dict.fromkeys(after, names), counts, owned)) <= 2
