"""A transcript as text.

A line that begins with `> ` is a stimulus. Indented lines below it are its effects. Everything else (comments behind
`#`, empty lines) is for the reader and stays as it is when the effects are written anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

PROMPT = "> "
INDENT = "    "


class NotATranscript(ValueError):
    """A line is neither a stimulus nor an effect nor a comment, or an effect has no stimulus."""


@dataclass
class Step:
    """One stimulus with its effects. `before`: the lines for the reader that stand above it."""

    stimulus: str
    effects: list[str] = field(default_factory=list)
    before: list[str] = field(default_factory=list)


def read_transcript(text: str) -> list[Step]:
    """The steps in order. What follows the last one belongs to a step without a stimulus."""
    steps: list[Step] = []
    aside: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(PROMPT):
            steps.append(Step(line.removeprefix(PROMPT).strip(), before=aside))
            aside = []
        elif line.startswith(INDENT) and steps and not aside:
            steps[-1].effects.append(line.removeprefix(INDENT))
        elif not line or line.startswith("#"):
            aside.append(line)
        else:
            raise NotATranscript(f"line {number}: {line!r}")
    return [*steps, Step("", before=aside)] if aside else steps


def write_transcript(steps: Iterable[Step]) -> str:
    lines: list[str] = []
    for step in steps:
        lines += step.before
        if step.stimulus:
            lines.append(PROMPT + step.stimulus)
        lines += [INDENT + effect for effect in step.effects]
    return "".join(f"{line}\n" for line in lines)


# --- words ------------------------------------------------------------------------------------------------------------

_RUN = re.compile(r"(\D*)(\d+)\.\.\1(\d+)")
_NUMBERED = re.compile(r"(.*?)(\d+)")


def spread(words: Iterable[str]) -> list[str]:
    """`m0..m3` stands for m0 m1 m2 m3."""
    spread_out: list[str] = []
    for word in words:
        run = _RUN.fullmatch(word)
        if run is None:
            spread_out.append(word)
        else:
            spread_out += [f"{run[1]}{number}" for number in range(int(run[2]), int(run[3]) + 1)]
    return spread_out


def gather(words: Iterable[str]) -> list[str]:
    """The reverse of `spread`: three or more that count on are written as one."""
    runs: list[list[str]] = []
    for word in words:
        if runs and _follows(runs[-1][-1], word):
            runs[-1].append(word)
        else:
            runs.append([word])
    return [piece for run in runs for piece in ([f"{run[0]}..{run[-1]}"] if len(run) > 2 else run)]


def _follows(before: str, after: str) -> bool:
    one, other = _NUMBERED.fullmatch(before), _NUMBERED.fullmatch(after)
    return one is not None and other is not None and one[1] == other[1] and int(one[2]) + 1 == int(other[2])
