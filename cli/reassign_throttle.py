"""How fast replicas are filled: the keys that Kafka's tool sets for a reassignment, and deletes when it is done.

    leader.replication.throttled.rate, follower.replication.throttled.rate          of each broker that takes part
    leader.replication.throttled.replicas, follower.replication.throttled.replicas  of each topic, partition:broker,…

Leaders are throttled on every broker that holds a partition before, since any of them may come to lead it; followers on
those that are to be filled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from strandline.cli.cluster_picture import ClusterPicture, Targets
from strandline.protocol.types import TopicPartition

if TYPE_CHECKING:
    from strandline import Admin

F = TypeVar("F", bound=Callable[..., Any])
LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
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


def remove_throttle(admin: Admin, brokers: Iterable[int], topics: Iterable[str]) -> list[str]:
    """What was set, of these topics and of all brokers that run: their names. A ClientError."""
    from strandline.protocol.messages import ConfigResource, ConfigSource

    removed = []
    for name, entries in admin.describe_topic_configs(sorted(set(topics)), REPLICAS).items():
        if isinstance(entries, Exception):
            continue  # the topic is gone, and so are its keys
        found = [each.name for each in entries if each.config_source == ConfigSource.TOPIC and each.name in REPLICAS]
        if found:
            admin.alter_configs(ConfigResource.TOPIC, name, dict.fromkeys(found))
            removed.append(f"topic {name}")
    for broker_id in brokers:
        entries = admin.describe_configs(ConfigResource.BROKER, str(broker_id))
        found = [each.name for each in entries if _is_of_broker(each.config_source) and each.name in RATES]
        if found:
            admin.alter_configs(ConfigResource.BROKER, str(broker_id), dict.fromkeys(found))
            removed.append(f"broker {broker_id}")
    return removed


def _is_of_broker(source: int) -> bool:
    """Not what is set for all brokers, or in a file: a reassignment sets neither."""
    from strandline.protocol.messages import ConfigSource

    return source == ConfigSource.DYNAMIC_BROKER


def throttle_kept_option(function: F) -> F:
    return click.option("--preserve-throttles", is_flag=True, help="Leave the throttle as it is.")(function)


def removed_if_idle(admin: Admin, picture: ClusterPicture, plan: Targets, *, keep: bool) -> list[str]:
    """What was throttled and is not any more. While anything is under way it stays: it may be for that."""
    if keep or admin.list_partition_reassignments():
        return []
    return remove_throttle(admin, picture.racks, (tp.topic for tp in plan))


def tell_removed(removed: list[str]) -> None:
    if removed:
        click.echo(f"Removed the throttle of {', '.join(removed)}.")
