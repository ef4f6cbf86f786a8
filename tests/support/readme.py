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
    below = README.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return "".join(text for found, text in FENCE.findall(below) if found == language)


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
