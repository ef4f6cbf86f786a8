"""`strandline state-changes`: the change logs of all brokers merged by time, and what is missing from them.

It shares its core with `strandline history`: `protocol.history` says what a line means, `runtime.log_merge` reads.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from strandline.cli.history_options import (
    change_log_options,
    check_pattern,
    gap_texts,
    merge_of,
    time_range,
    unread_texts,
)
from strandline.cli.options import output_option, page_option, partition_numbers
from strandline.cli.session import JSON_VERSION, session_of
from strandline.cli.spark_session import warn
from strandline.cli.wording import counted, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.protocol.history.gaps import Gap, Unheard
    from strandline.protocol.history.gathering import Gathering, TooManyEvents
    from strandline.protocol.history.wanted import Wanted
    from strandline.runtime.log_merge import LogMerge

MOST_EVENTS_DRAWN = 100_000
"""Some 50 MB of memory, and more than a picture shows."""
PARTITIONS_DRAWN = 100
LINES_AT_ONCE = 1000
"""Each write costs a system call."""


@click.command(
    "state-changes",
    epilog="Examples: strandline state-changes --since -2h --topic clicks --partition 0,1,2; "
    "strandline state-changes --logs /var/log/broker-1 --logs /var/log/broker-2 --page changes.html --output json",
)
@change_log_options
@page_option
@output_option
@click.pass_context
def state_changes(
    ctx: click.Context,
    paths: tuple[Path, ...],
    logs: tuple[Path, ...],
    data_dir: Path,
    since: str | None,
    until: str | None,
    topics: str,
    partitions: str,
    page: Path | None,
    output: str,
) -> None:
    """Merge the change logs of all brokers by time: who led, who was in sync, which brokers and controllers came and
    went.

    Read are state-change.log and controller.log of all brokers, with what they were rolled to, packed or not, in the
    folders named and below: else in the folder of the embedded cluster. With topics or partitions only their lines are
    shown. What cannot be read is named with file and line, and so is where lines must be missing. With --output json
    there is an object a line, the last of which says what was missing. `history` tells what it all amounts to."""
    session = session_of(ctx)
    since_ms, until_ms = time_range(since, until, session.now_ms())
    check_pattern(topics)
    numbers = partition_numbers("--partitions", partitions)
    merge, files, missing = merge_of((*paths, *logs), data_dir)
    from strandline.protocol.history.wanted import Wanted

    run = _Run(
        merge,
        Wanted(topics, numbers),
        since_ms,
        until_ms,
        as_json=output == "json",
        page=page,
    )
    run.show()
    gaps, unheard = run.gaps.between(since_ms, until_ms)
    unread = [*unread_texts(merge, missing), *gap_texts(gaps, unheard)]
    nothing = run.why_nothing(files, is_all_read=not unread)
    for text in unread:
        warn(printable(text))
    if nothing is not None:
        raise nothing
    run.write_page(files)
    if output == "json":
        session.line.is_answered = True
        click.echo(json.dumps(_missing_fields(run, merge, gaps, missing, unheard)))


class _Run:
    """One merge, shown while it is read."""

    def __init__(
        self,
        merge: LogMerge,
        wanted: Wanted,
        since_ms: int | None,
        until_ms: int | None,
        *,
        as_json: bool,
        page: Path | None,
    ) -> None:
        from strandline.protocol.history.gaps import Gaps
        from strandline.protocol.history.gathering import Gathering

        self.matched = wanted.is_all
        self.shown = 0
        self._span_ms: tuple[int, int] | None = None
        self._merge = merge
        self._wanted = wanted
        self._since_ms, self._until_ms = since_ms, until_ms
        self._as_json = as_json
        self._page = page
        self.gaps = Gaps()
        self._gathering: Gathering | None = None
        self._too_many: TooManyEvents | None = None
        if page is not None:
            self._gathering = Gathering(MOST_EVENTS_DRAWN, since_ms, until_ms)

    def show(self) -> None:
        from strandline.cli.state_change_text import event_fields, event_text
        from strandline.protocol.history.gathering import TooManyEvents

        is_all = self._wanted.is_all
        lines: list[str] = []
        for told in self._merge:
            time_ms = told.line.time_ms
            first_ms, last_ms = self._span_ms or (time_ms, time_ms)
            self._span_ms = min(first_ms, time_ms), max(last_ms, time_ms)
            events = [event for event in told.line.events if self._wanted.has(event)]
            self.gaps.add(told, events)
            if self._gathering is not None:
                try:
                    self._gathering.add(told, events)
                except TooManyEvents as error:
                    self._gathering, self._too_many = None, error
            shown = [event for event in events if is_all or event.topic]
            self.matched = self.matched or bool(shown)
            if not self._is_in_range(time_ms, time_ms):
                continue
            self.shown += len(shown)
            for event in shown:
                if self._as_json:
                    lines.append(json.dumps(event_fields(event, told.file, told.number)))
                else:
                    lines.append(printable(event_text(event)))
            if len(lines) >= LINES_AT_ONCE:
                click.echo("\n".join(lines))
                lines.clear()
        if lines:
            click.echo("\n".join(lines))

    def _is_in_range(self, from_ms: int, to_ms: int) -> bool:
        return (self._since_ms is None or to_ms >= self._since_ms) and (
            self._until_ms is None or from_ms < self._until_ms
        )

    def why_nothing(self, files: int, *, is_all_read: bool) -> click.ClickException | None:
        """None: something was found, or might have been. is_all_read: what was asked for wrongly is a UsageError; what
        could not be read may have it, and then it is none."""
        merge, wanted = self._merge, self._wanted
        if self._span_ms is None:
            return click.ClickException(
                f"of the {counted(merge.damaged_lines, 'line')} in {counted(files, 'file')} none is one of a change "
                "log; name the folders of brokers (log.folder), or state-change.log and controller.log"
            )
        refuse = click.UsageError if is_all_read else click.ClickException
        if not self.matched:
            asked = [f"--topics '{wanted.topics}'"] if wanted.topics else []
            asked += [f"--partitions {','.join(map(str, sorted(wanted.partitions)))}"] if wanted.partitions else []
            ask = "asks" if len(asked) == 1 else "ask"
            return refuse(f"no line of these logs is of what {' and '.join(asked)} {ask} for")
        if not self._is_in_range(*self._span_ms):
            from strandline.spark_connector.pipelines.pictures import time_text

            told = " to ".join(map(time_text, self._span_ms)) + " UTC"
            return refuse(f"the logs tell of {told}; ask for a part of that (--since, --until)")
        return None

    def write_page(self, files: int) -> None:
        """ClickException where there is more than can be drawn."""
        if self._page is None:
            return
        if self._gathering is None:
            raise click.ClickException(
                f"--page: {self._too_many} are too many for one picture; choose --topics, --partitions or a part of "
                "the time, or have 'strandline history' draw them"
            )
        from strandline.protocol.history.summary import Sources
        from strandline.spark_connector.pipelines.history_page import history_page

        merge = self._merge
        sources = Sources(files, merge.damaged_lines, merge.lines_too_long, tuple(sorted(merge.cut_files)))
        summary = self._gathering.summary(sources, PARTITIONS_DRAWN)
        self._page.write_text(history_page(summary), encoding="utf-8")


# --- What is missing -------------------------------------------------------------------------------------------


def _missing_fields(
    run: _Run, merge: LogMerge, gaps: Sequence[Gap], missing: Sequence[str], unheard: Sequence[Unheard]
) -> dict[str, Any]:
    return {
        "_command": "state-changes",
        "_version": JSON_VERSION,
        "lines": merge.lines,
        "shown": run.shown,
        "damaged_lines": merge.damaged_lines,
        "damaged": [{"file": each.file, "line": each.number, "why": each.why} for each in merge.damaged],
        "lines_too_long": merge.lines_too_long,
        "cut_files": sorted(merge.cut_files),
        "unread_files": merge.failed,
        "missing_files": list(missing),
        "missing_brokers": [each.broker_id for each in unheard],
        "gaps": [{**_gap_fields(gap), "message": gap.text} for gap in gaps],
    }


def _gap_fields(gap: Gap) -> dict[str, Any]:
    fields = {**gap._asdict(), "before": gap.before._asdict(), "behind": gap.behind._asdict()}
    if not gap.topic:
        del fields["topic"], fields["topic_id"], fields["partition"]
    if gap.broker_id < 0:
        del fields["broker_id"]
    else:
        del fields["first"], fields["last"]
    return fields
