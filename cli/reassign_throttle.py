"""How fast replicas are filled: the keys that Kafka's tool sets for a reassignment, and deletes when it is done.

    leader.replication.throttled.rate, follower.replication.throttled.rate          of each broker that takes part
    leader.replication.throttled.replicas, follower.replication.throttled.replicas  of each topic, partition:broker,…

Leaders are throttled on every broker that holds a partition before, since any of them may come to lead it; followers on
those that are to be filled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from strandline.cli.cluster_picture import ClusterPicture, Targets, named
from strandline.protocol.types import TopicPartition

if TYPE_CHECKING:
    from strandline import Admin

F = TypeVar("F", bound=Callable[..., Any])
LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
MOST_NAMED = 10
RATES = (LEADER_RATE, FOLLOWER_RATE)
REPLICAS = (LEADER_REPLICAS, FOLLOWER_REPLICAS)


class Throttle(NamedTuple):
    """`topics`: name → keys and values."""

    brokers: tuple[int, ...]
    topics: Mapping[str, Mapping[str, str]]


def throttle_of(picture: ClusterPicture, plan: Targets) -> Throttle:
    """What has to be throttled while the plan is carried out, beside what is under way in its topics already: a topic
    has one list for all."""
    topics = {tp.topic for tp in plan}
    moving: dict[TopicPartition, tuple[int, ...]] = {
        tp: each.target for tp, each in picture.ongoing.items() if tp.topic in topics
    }
    moving |= {tp: tuple(replicas) for tp, replicas in plan.items()}
    brokers: set[int] = set()
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    for tp, target in sorted(moving.items()):
        before = picture.original(tp)
        new = [broker_id for broker_id in target if broker_id not in before]
        if not new:
            continue
        brokers.update(before, new)
        leaders.setdefault(tp.topic, []).extend(f"{tp.partition}:{broker_id}" for broker_id in before)
        followers.setdefault(tp.topic, []).extend(f"{tp.partition}:{broker_id}" for broker_id in new)
    return Throttle(
        tuple(sorted(brokers)),
        {
            name: {LEADER_REPLICAS: ",".join(leaders[name]), FOLLOWER_REPLICAS: ",".join(followers[name])}
            for name in leaders
        },
    )


def set_throttle(admin: Admin, picture: ClusterPicture, throttle: Throttle, bytes_per_s: int) -> None:
    """Before anything moves. A broker that is not running has nothing to throttle. A ClientError."""
    from strandline.protocol.messages import ConfigResource

    for name, keys in throttle.topics.items():
        admin.alter_configs(ConfigResource.TOPIC, name, dict(keys))
    for broker_id in throttle.brokers:
        if broker_id in picture.racks:
            admin.alter_configs(ConfigResource.BROKER, str(broker_id), dict.fromkeys(RATES, str(bytes_per_s)))


@contextmanager
def throttled(
    admin: Admin, picture: ClusterPicture, plan: Targets, bytes_per_s: int | None, again: str
) -> Iterator[None]:
    """Sets it, where a rate is given, for what is begun inside; where that fails, who looks hears that it stays."""
    try:
        if bytes_per_s is not None:
            set_throttle(admin, picture, throttle_of(picture, plan), bytes_per_s)
        yield
    except (Exception, KeyboardInterrupt):
        if bytes_per_s is not None:
            click.echo(f"strandline: the throttle may be set already; to remove it: {again}", err=True)
        raise


def remove_throttle(admin: Admin, brokers: Iterable[int], topics: Iterable[str]) -> list[str]:
    """What was set, of these topics and of all brokers that run: their names. `*` stays: no reassignment sets it. A
    ClientError."""
    from strandline.protocol.messages import ConfigResource, ConfigSource

    removed = []
    for name, entries in admin.describe_topic_configs(sorted(set(topics)), REPLICAS).items():
        if isinstance(entries, Exception):
            continue  # the topic is gone, and so are its keys
        found = [
            each.name
            for each in entries
            if each.config_source == ConfigSource.TOPIC and each.name in REPLICAS and each.value != "*"
        ]
        if found:
            admin.alter_configs(ConfigResource.TOPIC, name, dict.fromkeys(found))
            removed.append(f"topic {name}")
    for broker_id in brokers:
        found = _rates_of(admin, broker_id)
        if found:
            admin.alter_configs(ConfigResource.BROKER, str(broker_id), dict.fromkeys(found))
            removed.append(f"broker {broker_id}")
    return removed


def _rates_of(admin: Admin, broker_id: int) -> list[str]:
    """The keys that are set. Not what is set for all brokers, or in a file: a reassignment sets neither."""
    from strandline.protocol.messages import ConfigResource, ConfigSource

    entries = admin.describe_configs(ConfigResource.BROKER, str(broker_id))
    return [each.name for each in entries if each.config_source == ConfigSource.DYNAMIC_BROKER and each.name in RATES]


def tell_left(admin: Admin, brokers: Iterable[int]) -> None:
    """A throttle that is set while nothing is under way: it may be of somebody who keeps it, so it is not removed
    before somebody says whose it is. A ClientError."""
    left = [f"broker {broker_id}" for broker_id in brokers if _rates_of(admin, broker_id)]
    if left:
        click.echo(
            f"A throttle is still set for {named(left, MOST_NAMED)}; to remove it: strandline reassign verify FILE, or "
            f"of each broker: strandline configs alter --broker ID {' '.join(f'--delete {key}' for key in RATES)}"
        )


def throttle_kept_option(function: F) -> F:
    return click.option("--preserve-throttles", is_flag=True, help="Leave the throttle as it is.")(function)


def removed_if_idle(admin: Admin, picture: ClusterPicture, topics: Iterable[str]) -> list[str] | None:
    """What was throttled and is not any more. While anything is under way it stays, and None tells so: it may be for
    that."""
    if admin.list_partition_reassignments():
        return None
    return remove_throttle(admin, picture.racks, topics)


def tell_removed(removed: list[str] | None, again: str | None = None) -> None:
    """`again`: what removes it later, where one was set."""
    if removed:
        click.echo(f"Removed the throttle of {named(removed, MOST_NAMED)}.")
    if removed is None and again is not None:
        click.echo(f"The throttle stays, since other partitions are under way; when they are done: {again}")
