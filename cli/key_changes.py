"""What commands that set keys say of it, to people and to programs: `configs alter`, `quotas alter`."""

from __future__ import annotations

from collections.abc import Mapping

import click


def tell_changes(changes: Mapping[str, str | None], whose: object, *, dry_run: bool) -> None:
    """A line for each key: what it is set to, or, where that is None, that it is no longer set."""
    for key, value in changes.items():
        if value is None:
            done = f"{key} {'would no longer be' if dry_run else 'is no longer'} set"
        else:
            done = f"{key}={value} {'would be' if dry_run else 'is'} set"
        click.echo(f"{done} for {whose}")


def changes_json(changes: Mapping[str, object]) -> list[dict[str, object]]:
    return [{"key": key, "value": value} for key, value in changes.items()]
