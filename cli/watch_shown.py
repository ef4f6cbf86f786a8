"""How `strandline watch` shows what it sees: a table that lives in a terminal, else a line or a JSON object per change.

The table has what is wrong first where not all partitions have room, and below it the latest changes. It is drawn when
something was seen, by whoever looks: no thread.
"""

from __future__ import annotations

import collections
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

import click

from strandline.cli.watch_seen import Change, PartitionSeen, TopicSeen, Watched, broker_text, brokers_text, ends_text
from strandline.cli.wording import printable
from strandline.protocol.types import NO_BROKER

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

CHANGES_SHOWN = 8
OTHER_LINES = 7
"""Of the table beside its partitions and the changes: title, head, what is left out, an empty one, the prompt."""
FEWEST_ROWS = 3


class Shown(Protocol):
    """Where changes go."""

    def show(self, watched: Watched, changes: list[Change]) -> None:
        """After a look."""


def shown(output: str, *, in_place: bool) -> AbstractContextManager[Shown]:
    """What fits stdout. in_place: a table may be drawn over and over."""
    if output == "json":
        return _plain(_json_line)
    return _live() if in_place and sys.stdout.isatty() else _plain(_text_line)


class _Lines:
    def __init__(self, line: Callable[[Change], str]) -> None:
        self._line = line

    def show(self, watched: Watched, changes: list[Change]) -> None:
        for each in changes:
            click.echo(self._line(each))


@contextmanager
def _plain(line: Callable[[Change], str]) -> Iterator[Shown]:
    yield _Lines(line)


def _json_line(change: Change) -> str:
    return json.dumps(change.fields(), separators=(",", ":"))


def _text_line(change: Change) -> str:
    return printable(f"{clock_text(change.time_ms)} {change.name}: {change.text}")


def clock_text(time_ms: int) -> str:
    """`2026-11-24 10:00:00.123`, in UTC."""
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{time_ms % 1000:03d}"


# --- In a terminal ---------------------------------------------------------------------------------------------


@contextmanager
def _live() -> Iterator[Shown]:
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    with Live(console=console, auto_refresh=False) as live:

        class InPlace:
            def __init__(self) -> None:
                self.latest: collections.deque[Change] = collections.deque(maxlen=CHANGES_SHOWN)

            def show(self, watched: Watched, changes: list[Change]) -> None:
                self.latest.extend(each for each in changes if each.is_event and each.changed)
                moved = {each.partition: each.changed for each in changes if each.partition is not None}
                live.update(drawn(watched, self.latest, moved, console), refresh=True)

        yield InPlace()


def drawn(
    watched: Watched, latest: Iterable[Change], moved: dict[int, tuple[str, ...]], console: Console
) -> RenderableType:
    """All of it. moved: partition → fields that the last look found changed, which are shown bold."""
    from rich.console import Group
    from rich.text import Text

    seen = watched.current
    assert seen is not None, "a look comes first"
    changes = [_text_line(each) for each in latest]
    title = f"{seen.topic} · id {seen.topic_id or '-'} · {clock_text(seen.time_ms)} UTC"
    parts: list[RenderableType] = [Text(printable(title), style="bold", overflow="ellipsis", no_wrap=True)]
    if seen.problem:
        parts.append(Text(printable(f"topic {seen.topic}: {seen.problem}"), style="bold red"))
    room = max(FEWEST_ROWS, console.height - OTHER_LINES - len(changes))
    numbers, left_out = chosen(seen, watched.changed_ms, room)
    if numbers:
        parts.append(_table(watched, seen, numbers, moved))
    if left_out:
        parts.append(Text(f"… and {left_out:,} more partitions (--partition chooses)", style="dim"))
    parts += [Text(each, style="dim", overflow="ellipsis", no_wrap=True) for each in changes]
    parts.append(Text(""))  # Ctrl-C is echoed there: behind a line that fills the terminal it were a line more to erase
    return Group(*parts)


def chosen(seen: TopicSeen, changed_ms: dict[int, int], room: int) -> tuple[list[int], int]:
    """The partitions that are shown, and how many are not: first of all those with something wrong, then those that
    changed last."""
    partitions = seen.partitions or {}
    if len(partitions) <= room:
        return sorted(partitions), 0

    def urgency(number: int) -> tuple[bool, bool, int, int]:
        state = partitions[number]
        return state.leader != NO_BROKER, not (state.lagging or state.away), -changed_ms.get(number, 0), number

    return sorted(sorted(partitions, key=urgency)[:room]), len(partitions) - room


COLUMNS = ("parti-\ntion", "leader", "epoch", "ISR", "not in\nsync", "HW", "LEO", "records\nper s", "changed", "away")
"""Headings are narrow enough for three replicas on 80 columns."""
NUMBERS = frozenset((COLUMNS[0], "leader", "epoch", "HW", COLUMNS[7]))


def _table(watched: Watched, seen: TopicSeen, numbers: list[int], moved: dict[int, tuple[str, ...]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 1, 0, 0))
    for column in COLUMNS:
        width = max(map(len, column.splitlines()))
        table.add_column(column, justify="right" if column in NUMBERS else "left", overflow="fold", min_width=width)
    for number in numbers:
        assert seen.partitions is not None
        state, changed = seen.partitions[number], moved.get(number, ())
        styles = ["bold" if name in changed else "" for name in _FIELDS]
        of_row = "red" if state.leader == NO_BROKER else "yellow" if state.lagging or state.away else ""
        cells = cells_of(watched, number, state, seen.time_ms)
        table.add_row(*(Text(cell, style) for cell, style in zip(cells, styles, strict=True)), style=of_row)
    return table


_FIELDS = ("", "leader", "leader_epoch", "isr", "isr", "high_watermark", "log_end_offsets", "", "", "away")
"""Which field each of COLUMNS shows."""


def cells_of(watched: Watched, number: int, state: PartitionSeen, now_ms: int) -> list[str]:
    """What stands in each of COLUMNS."""
    rate, changed_ms = watched.records_per_second(number), watched.changed_ms.get(number)
    return [
        str(number),
        broker_text(state.leader),
        str(state.leader_epoch),
        brokers_text(state.isr),
        brokers_text(state.lagging) if state.lagging else "",
        "" if state.high_watermark is None else str(state.high_watermark),
        ends_text(state.log_end_offsets),
        "" if rate is None else f"{rate:,.0f}",
        "" if changed_ms is None else f"{max(0, now_ms - changed_ms) // 1000} s ago",
        printable("; ".join(state.away[broker] for broker in sorted(state.away))),
    ]
