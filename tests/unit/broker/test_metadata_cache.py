"""The metadata cache: what the controller says, and never an older epoch of the same topic."""

from __future__ import annotations

import pytest

from strandline.broker.metadata_cache import Deleted, MetadataCache
from strandline.client.errors import CannotReachBroker
from strandline.protocol.messages import (
    LEADER_DURING_DELETE,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from strandline.runtime.network import Address

OLD_ID, NEW_ID = b"\x01" * 16, b"\x02" * 16


def state(index: int = 0, *, leader: int = 1, epoch: int = 0, controller_epoch: int = 1, isr: tuple[int, ...] = (1,)):
    return UpdateMetadataPartitionState(index, controller_epoch, leader, epoch, list(isr), 0, [1, 2])


def update(
    cache: MetadataCache, *states: UpdateMetadataPartitionState, topic_id: bytes = OLD_ID, alive: tuple[int, ...] = (1,)
) -> Deleted:
    brokers = [UpdateMetadataBroker(n, [UpdateMetadataEndpoint("INTERNAL", f"host-{n}", 9000 + n)]) for n in alive]
    topics = [UpdateMetadataTopicState("t", topic_id, list(states))] if states else []
    return cache.update(UpdateMetadataRequest(9, 1, 1, topics, brokers))


def test_live_brokers_are_replaced_whole_and_topics_are_a_change_set() -> None:
    cache = MetadataCache()
    update(cache, state(0), state(1), alive=(1, 2))
    update(cache, state(1, leader=2, epoch=1), alive=(2,))
    assert not cache.is_alive(1) and cache.is_alive(2)
    assert (cache.partition("t", 0).leader, cache.partition("t", 1).leader) == (1, 2)
    assert (cache.controller_id, cache.version) == (9, 2)


@pytest.mark.parametrize(("epoch", "controller_epoch"), [(4, 1), (4, 2), (5, 0)])
def test_an_older_epoch_does_not_replace_a_newer_one(epoch: int, controller_epoch: int) -> None:
    cache = MetadataCache()
    update(cache, state(leader=1, epoch=5))
    update(cache, state(leader=2, epoch=epoch, controller_epoch=controller_epoch))
    assert cache.partition("t", 0).leader == 1


def test_the_same_epoch_may_bring_another_isr() -> None:
    cache = MetadataCache()
    update(cache, state(epoch=5, isr=(1,)))
    update(cache, state(epoch=5, isr=(1, 2)))
    assert cache.partition("t", 0).isr == [1, 2]


def test_a_topic_created_anew_begins_at_its_own_epochs() -> None:
    cache = MetadataCache()
    update(cache, state(0, epoch=9), state(1, epoch=9))
    update(cache, state(0, epoch=0), topic_id=NEW_ID)
    assert cache.topics["t"].topic_id == NEW_ID
    assert cache.partition("t", 0).leader_epoch == 0
    assert cache.partition("t", 1) is None


def test_a_deleted_topic_is_forgotten_partition_by_partition() -> None:
    cache = MetadataCache()
    update(cache, state(0), state(1))
    update(cache, state(0, leader=LEADER_DURING_DELETE))
    assert cache.partition("t", 0) is None and cache.partition("t", 1) is not None
    update(cache, state(1, leader=LEADER_DURING_DELETE))
    assert "t" not in cache.topics
    update(cache, state(1, leader=LEADER_DURING_DELETE))
    assert "t" not in cache.topics


def test_a_late_deletion_does_not_touch_the_topic_that_was_created_anew() -> None:
    cache = MetadataCache()
    update(cache, state(0), topic_id=NEW_ID)
    update(cache, state(0, leader=LEADER_DURING_DELETE), topic_id=OLD_ID)
    assert cache.topics["t"].topic_id == NEW_ID
    assert cache.partition("t", 0) is not None


def test_it_says_what_is_deleted_and_was_known() -> None:
    cache = MetadataCache()
    assert update(cache, state(0), state(1), state(2)) == {}
    assert update(cache, state(1, leader=LEADER_DURING_DELETE)) == {"t": {1}}
    assert update(cache, state(1, leader=LEADER_DURING_DELETE)) == {}
    assert update(cache, state(0, leader=LEADER_DURING_DELETE), topic_id=NEW_ID) == {}
    assert update(cache, state(0), topic_id=NEW_ID) == {"t": {0, 2}}, "made anew"
    assert update(cache, state(2, leader=LEADER_DURING_DELETE)) == {}, "of the former one"


def test_a_topic_is_found_by_its_id_as_long_as_it_is_there() -> None:
    cache = MetadataCache()
    update(cache, state(0))
    assert cache.name_of == {OLD_ID: "t"}
    update(cache, state(0), topic_id=NEW_ID)
    assert cache.name_of == {NEW_ID: "t"}, "made anew"
    update(cache, state(0, leader=LEADER_DURING_DELETE), topic_id=OLD_ID)
    assert cache.name_of == {NEW_ID: "t"}
    update(cache, state(0, leader=LEADER_DURING_DELETE), topic_id=NEW_ID)
    assert cache.name_of == {}


def test_a_broker_is_reached_at_the_listener_that_is_asked_for_while_it_lives() -> None:
    cache = MetadataCache()
    update(cache, alive=(1,))
    assert cache.address_of(1, "INTERNAL") == Address("host-1", 9001)
    for broker_id, listener in ((1, "PLAINTEXT"), (2, "INTERNAL")):
        with pytest.raises(CannotReachBroker, match=f"broker {broker_id} .* {listener}"):
            cache.address_of(broker_id, listener)


def test_a_topic_that_went_unheard_is_forgotten_and_nobody_is_told_that_it_was_deleted() -> None:
    cache = MetadataCache()
    update(cache, state())
    assert cache.update(UpdateMetadataRequest(9, 2, 1, [], [], all_topics=["t"])) == {}
    assert cache.partition("t", 0) is not None
    assert cache.update(UpdateMetadataRequest(9, 2, 1, [], [])) == {}
    assert cache.partition("t", 0) is not None
    assert cache.update(UpdateMetadataRequest(9, 2, 1, [], [], all_topics=["other"])) == {}
    assert (cache.topics, cache.name_of) == ({}, {})
