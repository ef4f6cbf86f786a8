"""Words that several commands share."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """`1 broker`, `2 brokers`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def printable(text: str) -> str:
    """`text` as one line without control characters; file names that are not UTF-8 are escaped."""
    line = " ".join(text.split())
    line = line.encode("utf-8", "backslashreplace").decode()
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in line)


def sized(count: int | float) -> str:
    """Bytes for people: `999 B`, `1.5 GiB`."""
    if abs(count) < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        count /= 1024
        if abs(count) < 1024 or unit == "TiB":
            break
    return f"{count:.1f} {unit}"


def lasting(seconds: float) -> str:
    """A time for people: `40 s`, `12 min`, `3 h 5 min`."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 2:
        return f"{minutes * 60 + rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
