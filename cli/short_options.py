"""Reading short options of a command line that may be wrong elsewhere: `-J` may stand in a cluster such as `-eJ`, and
`-tJ` is the topic J."""

from __future__ import annotations

from collections.abc import Sequence

import click


def has_flag(command: click.Command, words: Sequence[str], flag: str) -> bool:
    """Whether one of these words gives the flag (`-J`), as the command takes them; what it does not know has no
    value."""
    takes_value = {
        name
        for each in command.params
        if isinstance(each, click.Option) and not (each.is_flag or each.count)
        for name in each.opts
    }
    left = iter(words)
    for word in left:
        if word == "--":
            return False
        if word.startswith("--"):
            if word in takes_value:
                next(left, None)
        elif word.startswith("-"):
            for place, letter in enumerate(word[1:], 2):
                name = f"-{letter}"
                if name == flag:
                    return True
                if name in takes_value:
                    if place == len(word):
                        next(left, None)
                    break
    return False
