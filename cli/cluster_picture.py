"""The cluster as commands that move replicas look at it: who lives, who holds what, what is under way, how large it is.

And what a plan makes of it, for people and for programs: the bytes that have to go over the network, and each broker's
replicas, preferred leaders and bytes before and after.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from strandline.cli.item_errors import error_fields
from strandline.cli.options import LOOK_TIMEOUT_MS, no_such_broker
from strandline.cli.tables import show_table
from strandline.cli.wording import counted, printable, sized
from strandline.protocol.errors import ErrorCode
from strandline.protocol.types import TopicPartition

if TYPE_CHECKING:
    from strandline import Admin
    from strandline.client.errors import ClientError
    from strandline.client.metadata import PartitionView, TopicView
    from strandline.client.placement import Held
    from strandline.client.reassignments import OngoingReassignment

ONGOING_TIMEOUT_MS = 5_000
"""So long the controller may take to say what is under way, where that may stay unknown: there may be none."""
LOG_DIRS_TIMEOUT_MS = 5_000
"""So long each look at the sizes of logs may take; a broker that is paused never says."""

Targets = Mapping[TopicPartition, Sequence[int]]


@dataclass(frozen=True, slots=True)
class ClusterPicture:
    """At one moment. `racks`: of the brokers that live. `unheard`: of those, who do not say how large their logs are,
    and why. `ongoing_untold`: why it is not known what is under way, where that is allowed."""

    racks: Mapping[int, str | None]
    partitions: Mapping[TopicPartition, PartitionView]
    ongoing: Mapping[TopicPartition, OngoingReassignment]
    sizes: Mapping[int, Mapping[TopicPartition, int]]
    unheard: Mapping[int, Exception]
    ongoing_untold: str = ""

    def held(self) -> dict[TopicPartition, Held]:
        """Each partition as it will be when what is under way is done."""
        from strandline.client.placement import Held
        from strandline.client.reassignment_progress import copy_bytes

        return {
            tp: Held(self.target(tp), copy_bytes(tp, view, self.sizes)) for tp, view in sorted(self.partitions.items())
        }

    def target(self, tp: TopicPartition) -> tuple[int, ...]:
        """Who holds it when what is under way is done."""
        return self.ongoing[tp].target if tp in self.ongoing else self.partitions[tp].replicas

    def original(self, tp: TopicPartition) -> tuple[int, ...]:
        """Who held it before what is under way began."""
        return self.ongoing[tp].original if tp in self.ongoing else self.partitions[tp].replicas


def look(admin: Admin, *, needs_controller: bool = True) -> ClusterPicture:
    """All of the cluster. A ClientError where nobody answers, or, unless needs_controller is False, no controller."""
    from strandline.client.errors import ClientError
    from strandline.client.log_dirs import log_sizes

    cluster = admin.describe_cluster(timeout_ms=LOOK_TIMEOUT_MS)  # who has a wrong address hears it soon
    topics, ongoing, untold = topics_and_ongoing(admin, needs_controller=needs_controller)
    told = admin.describe_log_dirs(sorted(cluster.brokers), timeout_ms=LOG_DIRS_TIMEOUT_MS)
    return ClusterPicture(
        {broker_id: broker.rack for broker_id, broker in sorted(cluster.brokers.items())},
        {
            TopicPartition(name, number): view
            for name, each in topics.items()
            for number, view in each.partitions.items()
        },
        ongoing,
        {broker_id: log_sizes(each) for broker_id, each in told.items() if not isinstance(each, ClientError)},
        {broker_id: each for broker_id, each in told.items() if isinstance(each, ClientError)},
        str(untold or ""),
    )


def topics_and_ongoing(
    admin: Admin, *, needs_controller: bool = True, timeout_ms: float | None = None
) -> tuple[dict[str, TopicView], dict[TopicPartition, OngoingReassignment], ClientError | None]:
    """All topics, what is under way, and why that is not known, where it is allowed not to be."""
    # Before and after: what begins or ends meanwhile has all of its replicas, old and new, in the topics' description.
    before, untold_before = _ongoing(admin, needs_controller)
    topics = admin.describe_topics(timeout_ms=timeout_ms)
    after, untold_after = ({}, None) if untold_before else _ongoing(admin, needs_controller)
    return topics, {**before, **after}, untold_before or untold_after


def _ongoing(
    admin: Admin, needs_controller: bool
) -> tuple[dict[TopicPartition, OngoingReassignment], ClientError | None]:
    """Or why it is not known."""
    from strandline.client.errors import ClientError

    if needs_controller:
        return admin.list_partition_reassignments(), None
    try:
        return admin.list_partition_reassignments(timeout_ms=ONGOING_TIMEOUT_MS), None
    except ClientError as error:
        return {}, error


def nobody_controls(error: ClientError | None) -> bool:
    """Whether a question to the controller failed because no broker acts as it. Without ZooKeeper nobody does, and all
    go on naming the last one."""
    from strandline.client.errors import AnsweredError

    cause = None if error is None else error.__cause__
    return isinstance(cause, AnsweredError) and cause.code == ErrorCode.NOT_CONTROLLER


@dataclass(frozen=True, slots=True)
class PlanFigures:
    """What a plan does. `rows`: broker → (before, after). `replicas_to_move`, `bytes_to_move`, `receives`: copies that
    are not in sync yet, and what they lack; of one that is being filled, the rest. `done`: partitions that lie so
    already; `under_way`: those that are on their way there already."""

    plan: Targets
    present: Mapping[TopicPartition, tuple[int, ...]]
    bytes_to_move: int
    replicas_to_move: int
    rows: Mapping[int, tuple[Any, Any]]
    receives: Mapping[int, int]
    done: frozenset[TopicPartition]
    under_way: frozenset[TopicPartition]


def figures(picture: ClusterPicture, plan: Targets) -> PlanFigures:
    """Of all partitions of the cluster, with the plan's where it has a say."""
    from strandline.client.placement import BrokerLoad, loads

    held = picture.held()
    before = loads((each.replicas, each.size_bytes) for each in held.values())
    after = loads((plan.get(tp, each.replicas), each.size_bytes) for tp, each in held.items())
    nothing = BrokerLoad(0, 0, 0)
    everyone = sorted({*picture.racks, *before, *after})
    receives = dict.fromkeys(everyone, 0)
    new = 0
    for tp, replicas in plan.items():
        view = picture.partitions[tp]
        for broker_id in set(replicas).difference(picture.original(tp), view.in_sync_replicas):
            there = picture.sizes.get(broker_id, {}).get(tp, 0) if broker_id in view.replicas else 0
            receives[broker_id] += max(0, held[tp].size_bytes - there)
            new += 1
    alike = {tp for tp, replicas in plan.items() if tuple(replicas) == picture.target(tp)}
    return PlanFigures(
        plan,
        present={tp: picture.original(tp) for tp in plan},
        bytes_to_move=sum(receives.values()),
        replicas_to_move=new,
        rows={each: (before.get(each, nothing), after.get(each, nothing)) for each in everyone},
        receives=receives,
        done=frozenset(alike.difference(picture.ongoing)),
        under_way=frozenset(alike.intersection(picture.ongoing)),
    )


def show_figures(picture: ClusterPicture, found: PlanFigures) -> None:
    """The table, and the sum below it. Leaders are those that are preferred: who leads at the moment may differ."""
    rows = []
    for broker_id, (before, after) in found.rows.items():
        state = "running" if broker_id in picture.racks else "not running"
        numbers = [
            f"{was} -> {will}" if was != will else str(was) for was, will in zip(before[:2], after[:2], strict=True)
        ]
        was, will = sized(before.size_bytes), sized(after.size_bytes)
        size = was if was == will else f"{was} -> {will}"
        rack = picture.racks.get(broker_id) or ""
        rows.append((str(broker_id), rack, state, *numbers, size, sized(found.receives[broker_id])))
    columns = ("broker", "rack", "state", "replicas", "leaders", "bytes", "receives")
    show_table(columns, rows, columns[3:])
    click.echo(summary(found))
    tell_unheard(picture)


def summary(found: PlanFigures) -> str:
    """One line."""
    what = f"{counted(len(found.plan) - len(found.done), 'partition')} to change"
    if found.under_way:
        what += f" ({len(found.under_way)} under way already)"
    return f"{what}, {counted(found.replicas_to_move, 'replica')} to copy: {sized(found.bytes_to_move)}"


def tell_unheard(picture: ClusterPicture) -> None:
    for broker_id, error in picture.unheard.items():
        text = f"broker {broker_id} does not say how large its logs are, so sizes may be too small: {error}"
        click.echo(f"strandline: {printable(text)}", err=True)


def figures_json(picture: ClusterPicture, found: PlanFigures) -> dict[str, Any]:
    """The fields that all commands with a plan have."""
    return {
        "partitions": [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "replicas": list(replicas),
                "present": list(found.present[tp]),
            }
            for tp, replicas in found.plan.items()
        ],
        "bytes_to_move": found.bytes_to_move,
        "replicas_to_move": found.replicas_to_move,
        "brokers": [
            {
                "broker": broker_id,
                "rack": picture.racks.get(broker_id),
                "running": broker_id in picture.racks,
                "before": before._asdict(),
                "after": after._asdict(),
                "receives_bytes": found.receives[broker_id],
            }
            for broker_id, (before, after) in found.rows.items()
        ],
        "unheard": [{"broker": each, **error_fields(error)} for each, error in picture.unheard.items()],
    }


def refuse_unknown(picture: ClusterPicture, plan: Targets, where: str) -> None:
    """UsageError for partitions that do not exist, and for brokers that neither live nor hold the partition, nor are
    about to."""
    for tp, replicas in plan.items():
        if tp not in picture.partitions:
            topic = any(each.topic == tp.topic for each in picture.partitions)
            what = f"topic {tp.topic} has no partition {tp.partition}" if topic else f"there is no topic {tp.topic}"
            raise click.UsageError(f"{where}: {what}")
        for broker_id in replicas:
            if broker_id not in {*picture.racks, *picture.original(tp), *picture.target(tp)}:
                raise no_such_broker(f"{where} ({tp})", broker_id, picture.racks)


def named(partitions: Iterable[object], most: int = 5) -> str:
    """`t-0, t-1 and 3 more`."""
    listed = [str(each) for each in partitions]
    return ", ".join(listed[:most]) + (f" and {len(listed) - most} more" if len(listed) > most else "")


def tell_failures(messages: Iterable[str], most: int = 10) -> None:
    """A line each; a broker that is away may have thousands of partitions."""
    told = list(messages)
    for text in told[:most]:
        click.echo(f"strandline: {printable(text)}", err=True)
    if len(told) > most:
        click.echo(f"strandline: and {len(told) - most} more like these; --output json has all", err=True)
