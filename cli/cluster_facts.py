"""What `strandline doctor --cluster` looks at: everything that brokers tell of a cluster, twice, some seconds apart.

A broker that does not answer hides nothing of the others; why it does not is a fact, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from strandline.cli.admin_ports import admin_ports, from_each, status_of
from strandline.cli.cluster_picture import nobody_controls, topics_and_ongoing
from strandline.cli.cluster_problems import LAST_MOMENT_MS, problems_in
from strandline.cli.disk_growth import BOUNDS
from strandline.cli.options import LOOK_TIMEOUT_MS
from strandline.protocol.types import NO_BROKER, TopicPartition

if TYPE_CHECKING:
    from strandline import Admin, Consumer
    from strandline.cli.session import Session
    from strandline.client.log_dirs import LogDirView
    from strandline.client.metadata import BrokerView, ClusterView, TopicView
    from strandline.client.reassignments import OngoingReassignment
    from strandline.runtime.network import Address

LOOKS_APART_S = 5.0
LOG_DIRS_TIMEOUT_MS = 5_000
UNLIKELY_TIMEOUT_MS = 2_000
"""So long an answer out of ZooKeeper is waited for where no broker acts as the controller."""
MIN_ISR, UNCLEAN = "min.insync.replicas", "unclean.leader.election.enable"
THROTTLED = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")

Configs = Mapping[str, str | None]


class GroupFacts(NamedTuple):
    """At one look. lag: records; None where nothing is committed. lag_untold: why it is not known, where it is not.
    end: the offsets where its partitions end, added up."""

    state: str
    lag: int | None = None
    lag_untold: str = ""
    end: int = 0


class Skew(NamedTuple):
    """How far a clock is ahead of this machine's, and how much that may be wrong: half of the time that asking took."""

    ahead_ms: int
    unsure_ms: int = 0


@dataclass(frozen=True, slots=True)
class Look:
    """Nearly at one moment: disks_at_s and groups_at_s tell when each was read, by a clock that counts from anywhere.
    groups: by name; groups_untold: why some may be missing, where they may."""

    controller: int = NO_BROKER
    directories: Mapping[int, list[LogDirView]] = field(default_factory=dict)
    groups: Mapping[str, GroupFacts] = field(default_factory=dict)
    groups_untold: str = ""
    disks_at_s: float = 0.0
    groups_at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """unheard: brokers that live and do not answer at their advertised address, and why. statuses: what admin ports
    say; untold: brokers whose port could not be asked, and why. skews: of each broker's clock. lasted_s: between the
    two looks at who is the controller. topic_configs, broker_configs: effective values; …_untold: why others are not
    known. ongoing: reassignments; ongoing_untold: why they are not known, where they are not. is_led: a broker acts as
    the controller, as far as is known."""

    brokers: Mapping[int, BrokerView]
    topics: Mapping[str, TopicView]
    before: Look
    after: Look
    lasted_s: float = LOOKS_APART_S
    ongoing: Mapping[TopicPartition, OngoingReassignment] = field(default_factory=dict)
    unheard: Mapping[int, str] = field(default_factory=dict)
    topic_configs: Mapping[str, Configs] = field(default_factory=dict)
    broker_configs: Mapping[int, Configs] = field(default_factory=dict)
    statuses: Mapping[int, Mapping[str, object]] = field(default_factory=dict)
    skews: Mapping[int, Skew] = field(default_factory=dict)
    untold: Mapping[int, str] = field(default_factory=dict)
    ongoing_untold: str = ""
    is_led: bool = True
    topic_configs_untold: Mapping[str, str] = field(default_factory=dict)
    broker_configs_untold: Mapping[int, str] = field(default_factory=dict)


def problems_told(facts: ClusterFacts) -> list[dict[str, Any]]:
    """By all that tell, each with its `broker`."""
    return [each for broker_id, status in facts.statuses.items() for each in problems_in(broker_id, status)]


def cluster_facts(session: Session, admin: Admin, consumer: Consumer, named: Mapping[int, Address]) -> ClusterFacts:
    """named: admin ports by the command line. A ClientError where no broker answers at all."""
    from strandline.runtime.processes.at_once import at_once

    view = admin.describe_cluster(timeout_ms=LOOK_TIMEOUT_MS)
    seen_at_s = session.monotonic()
    before, _ = _look(session, admin, consumer, view)
    began_s = session.monotonic()
    statuses, skews, untold = _statuses(session, admin, view, named)
    configs = at_once(partial(_broker_configs, admin), sorted(view.brokers))
    session.sleep(max(0.0, LOOKS_APART_S - (session.monotonic() - began_s)))
    view = admin.describe_cluster(timeout_ms=LOOK_TIMEOUT_MS)
    lasted_s = session.monotonic() - seen_at_s
    topics, ongoing, ongoing_untold = topics_and_ongoing(admin, needs_controller=False, timeout_ms=LOOK_TIMEOUT_MS)
    is_led = not nobody_controls(ongoing_untold)
    after, unheard = _look(session, admin, consumer, view)
    timeout_ms = None if is_led else UNLIKELY_TIMEOUT_MS
    topic_configs, topic_configs_untold = _topic_configs(admin, topics, timeout_ms)
    return ClusterFacts(
        view.brokers,
        topics,
        before,
        after,
        lasted_s,
        ongoing,
        unheard,
        topic_configs,
        {broker_id: found for broker_id, found in configs.items() if not isinstance(found, str)},
        statuses,
        skews,
        untold,
        str(ongoing_untold or ""),
        is_led,
        topic_configs_untold,
        {broker_id: why for broker_id, why in configs.items() if isinstance(why, str)},
    )


def _look(session: Session, admin: Admin, consumer: Consumer, view: ClusterView) -> tuple[Look, dict[int, str]]:
    """And which brokers do not say how their disks are."""
    from strandline.client.errors import ClientError

    disks_at_s = session.monotonic()
    told = admin.describe_log_dirs(sorted(view.brokers), timeout_ms=LOG_DIRS_TIMEOUT_MS)
    directories = {broker_id: each for broker_id, each in told.items() if not isinstance(each, ClientError)}
    unheard = {broker_id: str(each) for broker_id, each in told.items() if isinstance(each, ClientError)}
    groups, groups_untold = _groups(session, admin, consumer)
    return Look(view.controller_id, directories, groups, groups_untold, disks_at_s, session.monotonic()), unheard


def _groups(session: Session, admin: Admin, consumer: Consumer) -> tuple[dict[str, GroupFacts], str]:
    """And why some may be missing."""
    from strandline.cli.log_bounds import bounds_of
    from strandline.client.errors import ClientError

    try:
        listing = admin.list_groups(timeout_ms=LOOK_TIMEOUT_MS)
    except ClientError as error:
        return {}, str(error)
    untold = "; ".join(f"broker {broker_id}: {error}" for broker_id, error in sorted(listing.failures.items()))
    groups = {each.group_id: each.state for each in listing.groups}
    if not groups:
        return {}, untold
    listed = admin.list_offsets_of_groups(sorted(groups), timeout_ms=LOOK_TIMEOUT_MS)
    topics = admin.describe_topics(timeout_ms=LOOK_TIMEOUT_MS)
    leaders = {
        TopicPartition(name, number): view.leader
        for name, topic in topics.items()
        for number, view in topic.partitions.items()
    }
    # What is committed of a topic that was deleted is owed by nobody.
    committed = {
        name: {tp: offset.offset for tp, offset in each.items() if tp in leaders}
        for name, each in listed.items()
        if isinstance(each, Mapping)
    }
    wanted = {tp for each in committed.values() for tp in each}
    led = {tp: leader for tp, leader in leaders.items() if tp in wanted and leader != NO_BROKER}
    bounds = bounds_of(consumer, led, session.monotonic)
    ends = {tp: each.end for tp, each in bounds.items() if not isinstance(each, Exception)}
    found: dict[str, GroupFacts] = {}
    for name, state in groups.items():
        offsets, unknown = committed.get(name), ""
        if offsets is None:
            unknown = str(listed.get(name, "nobody tells what it has committed"))
        elif missing := [str(tp) for tp in offsets if tp not in ends]:
            unknown = f"nobody tells where {', '.join(missing[:3])} ends"
        lag, end = None, 0
        if offsets and not unknown:
            lag = sum(max(0, ends[tp] - offset) for tp, offset in offsets.items())
            end = sum(ends[tp] for tp in offsets)
        found[name] = GroupFacts(state, lag, unknown, end)
    return found, untold


def _topic_configs(
    admin: Admin, topics: Iterable[str], timeout_ms: float | None
) -> tuple[dict[str, Configs], dict[str, str]]:
    """And why those of others are not known."""
    from strandline.client.errors import ClientError

    names = list(topics)
    try:
        keys = (MIN_ISR, UNCLEAN, *THROTTLED, *BOUNDS)
        listed = admin.describe_topic_configs(names, keys, timeout_ms=timeout_ms)
    except ClientError as error:
        listed = dict.fromkeys(names, error)
    found: dict[str, Configs] = {
        name: {entry.name: entry.value for entry in each}
        for name, each in listed.items()
        if not isinstance(each, Exception)
    }
    return found, {name: str(each) for name, each in listed.items() if isinstance(each, Exception)}


def _broker_configs(admin: Admin, broker_id: int) -> Configs | str:
    """Or why they are not known."""
    from strandline.client.errors import ClientError
    from strandline.protocol.messages import ConfigResource

    try:
        entries = admin.describe_configs(ConfigResource.BROKER, str(broker_id), timeout_ms=LOG_DIRS_TIMEOUT_MS)
    except ClientError as error:
        return str(error)
    return {entry.name: entry.value for entry in entries}


def _statuses(
    session: Session, admin: Admin, view: ClusterView, named: Mapping[int, Address]
) -> tuple[dict[int, Mapping[str, object]], dict[int, Skew], dict[int, str]]:
    """What each broker says, how far its clock is ahead, or why it says nothing."""
    ports, untold = admin_ports(admin, view.brokers, named)

    def ask(broker_id: int) -> tuple[Mapping[str, object], int, int]:
        asked_ms = session.now_ms()
        status = status_of(ports[broker_id], broker_id, view.cluster_id, named=broker_id in named)
        return status, asked_ms, session.now_ms()

    told, silent = from_each(ports, ask)
    skews: dict[int, Skew] = {}
    for broker_id, (status, asked_ms, answered_ms) in told.items():
        told_ms = status.get("time_ms")
        if type(told_ms) is int and 0 <= told_ms <= LAST_MOMENT_MS:
            unsure_ms = (answered_ms - asked_ms) // 2
            skews[broker_id] = Skew(told_ms - asked_ms - unsure_ms, unsure_ms)
    return {broker_id: each[0] for broker_id, each in told.items()}, skews, untold | silent
