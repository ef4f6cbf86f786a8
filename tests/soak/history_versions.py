"""The version that brokers are rolled back to, and forth again, in `make soak-history`: the last commit before what
brokers say to each other, or write into ZooKeeper, last changed. There it is the repository that tells."""

from __future__ import annotations

import io
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SPOKEN = ("protocol/messages", "protocol/native", "protocol/znodes", "protocol/api.py")


@dataclass(frozen=True, slots=True)
class OlderVersion:
    """commit: its name in short. sources: what is imported from."""

    commit: str
    sources: Path


def older_version(folder: Path) -> OlderVersion | None:
    """Put there. None: this is no repository, or the part of one that has no such commit."""
    try:
        changed = _git("log", "-1", "--format=%H", "--", *SPOKEN).decode().strip()
        commit = _git("rev-parse", "--short", f"{changed}~1").decode().strip()
        archive = _git("archive", commit)
    except (OSError, subprocess.CalledProcessError):
        return None
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        packed.extractall(folder, filter="data")
    return OlderVersion(commit, folder / "src")


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *arguments], check=True, capture_output=True).stdout
