"""`strandline watch TOPIC`: who leads, who is in sync, and how far each replica has come, as it moves.

Live it looks at the cluster again and again (`watch_look`); with `--since` or `--logs` it tells what brokers have
logged (`watch_replay`). Either way `watch_seen` finds what has moved, and `watch_shown` shows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from strandline.cli.history_options import gap_texts, merge_of, time_range, unread_texts
from strandline.cli.options import (
    DAY_S,
    MOST_PER_SECOND,
    BoundedFloat,
    bootstrap_option,
    legal_topic,
    output_option,
    partition_numbers,
)
from strandline.cli.session import Session, bootstrap_of, cluster_folder, session_of
from strandline.cli.spark_session import warn
from strandline.cli.wording import printable

if TYPE_CHECKING:
    from strandline.protocol.history.gaps import Gaps
    from strandline.protocol.history.lines import Event
    from strandline.runtime.log_merge import LogMerge

FASTER = 60.0
"""An hour in a minute."""


@click.command(
    epilog="Examples: strandline watch clicks; strandline watch clicks --partition 0,3-5 --interval 0.5; "
    "strandline watch clicks --output json | jq -c 'select(.changed | index(\"isr\"))'; "
    "strandline watch clicks --since -2h --speed 600; "
    "strandline watch clicks --logs /logs/broker-1 --logs /logs/broker-2"
)
@click.argument("topic", callback=lambda ctx, parameter, value: legal_topic(value))
@bootstrap_option
@click.option("--partition", "--partitions", "partitions", default="", metavar="0,3-5", help="These only.")
@click.option(
    "--interval", type=BoundedFloat(0.05, DAY_S), default=1.0, show_default=True, help="Seconds between two looks."
)
@click.option("--once", is_flag=True, help="Look once, or replay up to the end without pauses, and end.")
@click.option("--since", metavar="TIME", help="Replay from then on: -2h (ago), 2024-02-14T10:00:00Z, ms since 1970.")
@click.option("--until", metavar="TIME", help="As --since; without it, up to the last line of the logs.")
@click.option(
    "--logs",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    metavar="FOLDER",
    help="Replay the logs in it and below; may be repeated. With --since alone: those of the embedded cluster.",
)
@click.option(
    "--speed",
    type=BoundedFloat(0, MOST_PER_SECOND),
    help="Of a replay: so many times as fast as it was; 0: without pauses.  [default: 60]",
)
@output_option
@click.pass_context
def watch(
    ctx: click.Context,
    topic: str,
    bootstrap: str | None,
    partitions: str,
    interval: float,
    once: bool,
    since: str | None,
    until: str | None,
    logs: tuple[Path, ...],
    speed: float | None,
    output: str,
) -> None:
    """Show leaders, epochs, in-sync replicas, high watermark (HW) and log ends (LEO) of a topic as they move.

    In a terminal a table that is drawn anew, else a line, or a JSON object, for each change. It goes on until Ctrl-C,
    also while the topic or its brokers are away. A replay tells the same from state-change.log and controller.log, at
    --speed; those say how far logs reached only when a role or the ISR changed, and pauses last 5 seconds at most."""
    session = session_of(ctx)
    numbers = partition_numbers("--partition", partitions)
    if since is None and not logs:
        for name, given in (("--until", until), ("--speed", speed)):
            if given is not None:
                raise click.UsageError(f"{name} is for a replay: say since when (--since) or of which logs (--logs)")
        _watch(session, bootstrap_of(session, bootstrap), topic, numbers, None if once else interval, output)
        return
    if bootstrap is not None:
        raise click.UsageError("--bootstrap is for a cluster as it is now; a replay reads logs: --logs or --data")
    since_ms, until_ms = time_range(since, until, session.now_ms())
    merge, _, missing = merge_of(logs, cluster_folder(session)[0])
    from strandline.protocol.history.gaps import Gaps

    gaps, logged = Gaps(), set[int]()
    pace = 0.0 if once else FASTER if speed is None else speed
    was_shown = _replay(session, _events(merge, topic, numbers, gaps, logged), topic, since_ms, until_ms, pace, output)
    for text in (*unread_texts(merge, missing), *gap_texts(*gaps.between(since_ms, until_ms))):
        warn(printable(text))
    if logged and (unlogged := numbers - logged):
        raise click.ClickException(
            f"topic {topic}: the logs say nothing of partition {_listed(unlogged)}, only of {_listed(logged)}"
        )
    if not was_shown:
        whom = f"partition {_listed(numbers)} of topic {topic}" if numbers else f"topic {topic}"
        raise click.ClickException(
            f"the logs say nothing of {whom} in that time; name the folders of all brokers with --logs, or another time"
        )


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))


def _watch(
    session: Session, servers: str, topic: str, numbers: frozenset[int], interval_s: float | None, output: str
) -> None:
    """interval_s None: once."""
    from strandline.cli.watch_look import Looker
    from strandline.cli.watch_seen import Watched
    from strandline.cli.watch_shown import shown

    watched = Watched()
    with session.admin(servers) as admin, session.consumer(servers) as consumer:
        looker = Looker(session, admin, consumer, topic, numbers)
        with shown(output, in_place=True) as to_people:
            while True:
                began_s = session.monotonic()
                seen = looker.look()
                to_people.show(watched, watched.take(seen))
                if interval_s is None:
                    break
                session.sleep(max(0.0, interval_s - (session.monotonic() - began_s)))
    if seen.problem:
        raise click.ClickException(f"topic {topic}: {seen.problem}")


def _replay(
    session: Session,
    events: Iterator[Event],
    topic: str,
    since_ms: int | None,
    until_ms: int | None,
    speed: float,
    output: str,
) -> bool:
    """Whether there was anything to show."""
    from strandline.cli.watch_replay import pause_s, replayed
    from strandline.cli.watch_seen import Watched
    from strandline.cli.watch_shown import shown

    watched = Watched()
    before_ms = None
    with shown(output, in_place=True) as to_people:
        for seen in replayed(events, topic, since_ms, until_ms):
            if before_ms is not None and (wait_s := pause_s(before_ms, seen.time_ms, speed)):
                session.sleep(wait_s)
            before_ms = seen.time_ms
            to_people.show(watched, watched.take(seen))
    return before_ms is not None


# --- The logs --------------------------------------------------------------------------------------------------


def _events(merge: LogMerge, topic: str, numbers: frozenset[int], gaps: Gaps, logged: set[int]) -> Iterator[Event]:
    """What the change logs say of these partitions of the topic and of brokers. Adds to `gaps` all of that, and to
    `logged` of which partitions they say anything."""
    from strandline.cli.watch_replay import KINDS
    from strandline.protocol.history.lines import OF_PARTITIONS
    from strandline.protocol.history.wanted import Wanted

    of_topic, wanted = Wanted(re.escape(topic)), Wanted(re.escape(topic), numbers)
    for told in merge:
        logged.update(
            event.partition for event in told.line.events if event.kind in OF_PARTITIONS and of_topic.has(event)
        )
        events = [event for event in told.line.events if wanted.has(event)]
        gaps.add(told, events)
        yield from (event for event in events if event.kind in KINDS)
