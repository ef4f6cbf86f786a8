"""Why something is refused, for whoever has to act: one line that goes from a broker to the controller, from there to
all brokers, and from them to clients.

Its beginning names what is refused and its end the remedy, so what is too long is cut in its middle. Nothing in it is
beyond what can be encoded and shown: paths may hold any bytes.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

MAX_REASON_CHARS = 800
"""The longest text of `storage/errors.py`, with paths of a usual length."""
_CUT = " … "

Reason = Annotated[str, Meta(max_length=MAX_REASON_CHARS)]
"""In a message: a longer one is refused with it."""


def reason_of(cause: object) -> Reason:
    """What an error (or a text) says, as such a line."""
    line = " ".join(str(cause).split())
    if len(line) > MAX_REASON_CHARS:
        half = (MAX_REASON_CHARS - len(_CUT)) // 2
        line = f"{line[:half]}{_CUT}{line[-half:]}"
    return "".join(letter if letter.isprintable() else "?" for letter in line)
