"""How `--help` shows examples: each on a line of its own, as long as it is, so that it can be copied."""

from __future__ import annotations

import re

import click


class HelpFormatter(click.HelpFormatter):
    """Everything else as click does."""

    def write_text(self, text: str) -> None:
        if not (examples := examples_of(text)):
            super().write_text(text)
            return
        margin = " " * self.current_indent
        self.write(f"{margin}Example{'s' if len(examples) > 1 else ''}:\n")
        for example in examples:
            self.write(f"{margin}  {example}\n")


def examples_of(epilog: str) -> list[str]:
    """The command lines of `Examples: this; that`; nothing where the text is none of examples."""
    found = re.fullmatch(r"Examples?: (.*)", " ".join(epilog.split()))
    return re.split(r";\s+(?=strandline )", found[1]) if found else []
