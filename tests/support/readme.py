"""The README as what it says: its code blocks, and how they are typed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def block(heading: str, language: str) -> str:
    """The code blocks in that language below a heading, one after the other."""
    return "".join(blocks(heading, language))


def blocks(heading: str, language: str) -> list[str]:
    """Each of them by itself."""
    return [text for found, text in FENCE.findall(below(heading)) if found == language]


def below(heading: str) -> str:
    return README.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def rows(heading: str) -> list[list[str]]:
    """The rows of the tables below a heading, without their heads; a bar in code as it is shown."""
    lines = [line for line in below(heading).splitlines() if line.startswith("|")]
    cells = [[cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [row for place, row in enumerate(cells) if not {place, place + 1} & _rules(cells)]


def _rules(cells: list[list[str]]) -> set[int]:
    """Where the lines of dashes are."""
    return {place for place, row in enumerate(cells) if set(row) == {"---"}}


def run(command: list[str], folder: Path) -> str:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


def shell(command: str, folder: Path) -> str:
    """As typed; the command itself is found also where it is not installed as a script."""
    python = f'strandline() {{ "{sys.executable}" -m strandline.cli "$@"; }}'
    return run(["bash", "-ec", f"set -o pipefail; {python}; {command}"], folder)
