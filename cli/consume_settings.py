"""The settings that `-X` does not take where records are read: an option has their place, or they would mislead.

A group's offsets are not to move but for what was printed. A consumer that is given a group by its setting would commit
what nobody has seen.
"""

from __future__ import annotations

from collections.abc import Mapping

import click

from strandline.cli.options import key_of_setting

_REFUSED = {
    "group_id": "does not make a member of a group here: say --group NAME, which commits what was printed",
    "group_instance_id": "does not make a static member here: say --group NAME --group-instance-id ID",
    "enable_auto_commit": "is not taken here: with --group what was printed is committed, without it nothing is",
    "consumer_timeout_ms": "is for loops in programs: say --timeout-ms",
}


def refuse_groups(settings: Mapping[str, object]) -> None:
    """For commands that only measure. UsageError."""
    if (key := key_of_setting(settings, "group_id")) is not None:
        raise click.UsageError(f"-X {key} is not taken here: a benchmark reads by itself, and moves no group's offsets")


def refuse_settings_of_programs(settings: Mapping[str, object]) -> None:
    """UsageError that says what to type instead."""
    for name, why in _REFUSED.items():
        if (key := key_of_setting(settings, name)) is not None:
            raise click.UsageError(f"-X {key} {why}")
