"""The README's first chapter on a terminal, where people sit: tables are drawn, nothing is garbled, exit codes hold."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from support.readme import blocks
from support.terminal import Seen, on_a_terminal

COMMANDS, PIPES = (
    [line.partition("  #")[0].strip() for line in text.splitlines() if line.startswith(("strandline ", "printf "))]
    for text in blocks("A cluster of one's own", "")
)
BOLD = "\x1b[1m"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    subprocess.run([sys.executable, "-m", "strandline.cli", "down"], cwd=tmp_path, capture_output=True, check=False)


def typed(line: str, folder: Path, keys: Sequence[tuple[str, str]] = ()) -> Seen:
    python = f'strandline() {{ "{sys.executable}" -m strandline.cli "$@"; }}'
    return on_a_terminal(["bash", "-c", f"set -o pipefail; {python}; {line}"], folder, keys=keys)


def test_the_first_chapter_on_a_terminal(folder: Path) -> None:
    *before, down = COMMANDS
    before += PIPES
    seen = {line: typed(line, folder) for line in before}
    assert {line: each.code for line, each in seen.items()} == dict.fromkeys(before, 0)

    tables = {line: each for line, each in seen.items() if re.search(r"describe|status|reset", line)}
    assert len(tables) == 4
    for line, each in tables.items():
        assert BOLD in each.written, f"no table was drawn: {line}"
        wide = [part for part in each.wrapped if not part.startswith("cluster in /")]
        assert not wide, f"wider than the terminal: {line}"
    for each in seen.values():
        assert "Traceback" not in each.text

    assert typed("strandline consume -t nosuch -o :end", folder).code == 1
    usage = typed("strandline produce", folder)
    assert usage.code == 2 and "--topic" in usage.text
    read = typed("strandline consume -t clicks --from-beginning", folder, keys=[("logout", "\x03")])
    assert read.code == 130
    said = typed("strandline produce -t clicks", folder, keys=[(">", "by hand\n"), (">", "\x04")])
    assert said.code == 0 and "1 record produced to clicks" in said.text
    # It is drawn a second time, in place, before somebody ends it.
    watched = typed("strandline watch clicks --interval 0.2", folder, keys=[("clicks", ""), ("clicks", "\x03")])
    titles = [line for line in watched.lines if line.startswith("clicks · id ")]
    assert (watched.code, len(titles), watched.wrapped) == (130, 1, []), watched.text
    headings = watched.lines[watched.lines.index(titles[0]) + 1]
    assert headings.split() == ["parti-", "not", "in", "records"]
    assert re.search(r"^ +0 +\d +\d+ +\d,\d,\d +\d+ +1:\d+ 2:\d+ 3:\d+ ", watched.text, re.MULTILINE)
    measured = typed("strandline bench produce --seconds 2", folder)
    assert measured.code == 0 and BOLD in measured.written
    assert sum(" records sent, " in line for line in measured.lines) >= 2
    assert not [line for line in measured.lines if "━" in line], "the bar goes when it is done"

    assert typed(down, folder).code == 0
