"""What programs are told of one thing that failed, alike in every command: `error`, a name to decide by, and `message`,
what people read."""

from __future__ import annotations

import click


def error_name(error: BaseException) -> str:
    """The broker's name for it (UNKNOWN_TOPIC_OR_PARTITION), else the kind of error (NoBrokerReachable)."""
    from strandline.protocol.errors import error_code

    code = getattr(error, "code", None)
    if isinstance(code, int):
        return error_code(code).name
    return "Failed" if type(error) is click.ClickException else type(error).__name__


def error_fields(error: BaseException | None) -> dict[str, str | None]:
    """Of a row: both fields are always there. None: nothing failed."""
    if error is None:
        return {"error": None, "message": ""}
    return {"error": error_name(error), "message": str(error)}
