"""Carrying a plan out: it is given to the controller, and then looked at until it is done.

Nothing of it needs this command: once the controller has the plan written down, it goes on whoever looks. So Ctrl-C
ends the looking only, and the same command takes it up again.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import click

from strandline.cli.cluster_picture import LOG_DIRS_TIMEOUT_MS, Targets, named
from strandline.cli.session import Session, session_of
from strandline.cli.wording import counted, lasting, printable, sized

if TYPE_CHECKING:
    from strandline import Admin
    from strandline.client.metadata import PartitionView
    from strandline.client.reassignment_progress import CopyProgress
    from strandline.client.reassignments import OngoingReassignment
    from strandline.protocol.types import TopicPartition

LOOK_EVERY_S = 1.0
TELL_EVERY_S = 10.0
"""How often a line is written where nobody sees a bar."""
RATE_OVER_LOOKS = 10
SETTLING_LOOKS = 20
SETTLING_S = 0.25
LOOK_TIMEOUT_MS = 10_000
BAR_WIDTH = 12


class Progress(NamedTuple):
    """`left`: partitions that are under way, and those of their copies that are being filled. `waits`: what holds some
    of them up, in words; `stuck`: which ones. `elsewhere`: partitions of which nothing is under way any more, and which
    do not lie as they were to: somebody has cancelled that, or sent them elsewhere."""

    left: dict[TopicPartition, list[CopyProgress]]
    waits: list[str]
    stuck: set[TopicPartition]
    elsewhere: tuple[TopicPartition, ...] = ()

    @property
    def bytes_left(self) -> int:
        return sum(each.bytes_in_all - each.bytes_there for copies in self.left.values() for each in copies)


def progress(admin: Admin, partitions: Iterable[TopicPartition] | None) -> Progress:
    """One look (None: at all that is under way). A ClientError where the controller does not answer."""
    from strandline.client.errors import ClientError
    from strandline.client.log_dirs import log_sizes
    from strandline.client.reassignment_progress import copies

    ongoing = admin.list_partition_reassignments(partitions, timeout_ms=LOOK_TIMEOUT_MS)
    if not ongoing:
        return Progress({}, [], set())
    topics = admin.describe_topics(sorted({tp.topic for tp in ongoing}))
    views = {
        tp: topics[tp.topic].partitions[tp.partition]
        for tp in ongoing
        if tp.topic in topics and tp.partition in topics[tp.topic].partitions
    }
    alive = admin.describe_cluster().brokers
    asked = sorted({each for moving in ongoing.values() for each in moving.replicas if each in alive})
    told = admin.describe_log_dirs(asked, ongoing, timeout_ms=LOG_DIRS_TIMEOUT_MS)
    sizes = {broker_id: log_sizes(each) for broker_id, each in told.items() if not isinstance(each, ClientError)}
    left: dict[TopicPartition, list[CopyProgress]] = {tp: [] for tp in ongoing}
    for each in copies(ongoing, views, sizes):
        left[each.partition].append(each)
    return Progress(left, *_waits(ongoing, views, alive))


def _waits(
    ongoing: Mapping[TopicPartition, OngoingReassignment],
    views: Mapping[TopicPartition, PartitionView],
    alive: Collection[int],
) -> tuple[list[str], set[TopicPartition]]:
    """Why some of it does not get on by itself."""
    leaderless = [tp for tp in ongoing if tp in views and views[tp].leader < 0]
    gone: dict[int, list[TopicPartition]] = {}
    for tp, moving in ongoing.items():
        for broker_id in moving.target:
            if broker_id not in alive:
                gone.setdefault(broker_id, []).append(tp)
    found = [f"broker {each} does not run, and {named(tps)} cannot be done without it" for each, tps in gone.items()]
    if leaderless:
        found.append(f"nobody leads {named(leaderless)}, so nothing can be copied from there")
    return found, {*leaderless, *(tp for tps in gone.values() for tp in tps)}


class Watch:
    """Looks until the partitions are done, and shows how far they are on stderr: a bar to people, a line now and then
    to anything else."""

    def __init__(self, session: Session, admin: Admin, targets: Targets, all_bytes: int) -> None:
        self._session = session
        self._admin = admin
        self._targets = targets
        self._partitions = list(targets)
        self._all_bytes = all_bytes
        self._looks: deque[tuple[float, int]] = deque(maxlen=RATE_OVER_LOOKS)
        self._told: set[str] = set()

    def until_done(self, give_up: Callable[[Progress], bool] = lambda progress: False) -> Progress:
        """What is left: nothing, or what made `give_up` say so."""
        if sys.stderr.isatty():
            return self._with_bar(give_up)
        told_at = self._session.monotonic()

        def tell(found: Progress) -> None:
            nonlocal told_at
            if self._session.monotonic() - told_at >= TELL_EVERY_S:
                told_at = self._session.monotonic()
                click.echo(self._line(found), err=True)

        return self._until(tell, give_up)

    def _until(self, show: Callable[[Progress], None], give_up: Callable[[Progress], bool]) -> Progress:
        from strandline.client.errors import ClientError

        while True:
            try:
                found = progress(self._admin, self._partitions)
            except ClientError as error:
                if not error.retriable:
                    raise
                self._tell_once(f"cannot look how far it is, and tries again: {error}")
            else:
                self._all_bytes = max(self._all_bytes, found.bytes_left)
                self._looks.append((self._session.monotonic(), found.bytes_left))
                if not found.left:
                    return found._replace(elsewhere=self._settle())
                if give_up(found):
                    return found
                for each in found.waits:
                    self._tell_once(each)
                show(found)
            self._session.sleep(LOOK_EVERY_S)

    def _settle(self) -> tuple[TopicPartition, ...]:
        """What lies elsewhere. The controller is the first to know that all is done; brokers, who are asked for
        replicas, hear of it next."""
        elsewhere: tuple[TopicPartition, ...] = ()
        for _ in range(SETTLING_LOOKS):
            topics = self._admin.describe_topics()
            views = {tp: topics[tp.topic].partitions.get(tp.partition) for tp in self._targets if tp.topic in topics}
            elsewhere = tuple(
                tp for tp, view in views.items() if view is not None and view.replicas != tuple(self._targets[tp])
            )
            if not elsewhere:
                break
            self._session.sleep(SETTLING_S)
        return elsewhere

    def _tell_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            click.echo(f"strandline: {printable(text)}", err=True)

    def _with_bar(self, give_up: Callable[[Progress], bool]) -> Progress:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bars

        columns = (TextColumn("{task.description}"), BarColumn(BAR_WIDTH), TextColumn("{task.percentage:>3.0f} %"))
        with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
            task = bars.add_task("", total=1.0)

            def show(found: Progress) -> None:
                done = len(self._partitions) - len(found.left)
                share = done / max(1, len(self._partitions))
                if self._all_bytes:
                    share = 1 - found.bytes_left / self._all_bytes
                bars.update(task, description=self._line(found), completed=share)

            return self._until(show, give_up)

    def _line(self, found: Progress) -> str:
        """`3 of 12 partitions done, 1.2 GiB of 3.4 GiB, 40.0 MiB/s, 50 s left`."""
        from strandline.client.reassignment_progress import pace

        count = len(self._partitions)
        copied = sized(self._all_bytes - found.bytes_left)
        parts = [f"{count - len(found.left)} of {counted(count, 'partition')} done"]
        parts.append(f"{copied} of {sized(self._all_bytes)}")
        (then, before), (now, left) = self._looks[0], self._looks[-1]
        rate = pace(0, before - left, now - then, left)
        if rate.bytes_per_s > 0:
            parts.append(f"{sized(rate.bytes_per_s)}/s")
        if rate.left_s:
            parts.append(f"{lasting(rate.left_s)} left")
        return ", ".join(parts)


def watch_plan(
    ctx: click.Context,
    admin: Admin,
    targets: Targets,
    all_bytes: int,
    again: str,
    give_up: Callable[[Progress], bool] = lambda progress: False,
) -> Progress:
    """Until done; who presses Ctrl-C is told that it goes on, and which command looks `again`."""
    try:
        return Watch(session_of(ctx), admin, targets, all_bytes).until_done(give_up)
    except KeyboardInterrupt:
        click.echo(f"The cluster goes on with it. To see how far it is: {again}", err=True)
        raise
