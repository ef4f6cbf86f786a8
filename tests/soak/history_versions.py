"""The version that brokers are rolled back to, and forth again, in `make soak-history`: the last commit before what
brokers say to each other, or write into ZooKeeper, last changed. There it is the repository that tells."""

from __future__ import annotations

import io
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
GIT_TIMEOUT_S = 60.0
SPOKEN = ("protocol/messages", "protocol/native", "protocol/znodes", "protocol/api.py")


class CannotUnpack(Exception):
    """There is an earlier commit, and its sources cannot be put where brokers would run them."""


@dataclass(frozen=True, slots=True)
class OlderVersion:
    """commit: its name in short. sources: what is imported from."""

    commit: str
    sources: Path


def older_version(folder: Path) -> OlderVersion | None:
    """Put there. None: this is no repository, or the part of one that has no such commit. CannotUnpack."""
    try:
        changed = _git("log", "-1", "--format=%H", "--", *SPOKEN).decode().strip()
        commit = _git("rev-parse", "--short", f"{changed}~1").decode().strip()
    except (OSError, subprocess.CalledProcessError):
        return None
    try:
        with tarfile.open(fileobj=io.BytesIO(_git("archive", commit))) as packed:
            packed.extractall(folder, filter="data")
    except (OSError, tarfile.TarError, subprocess.CalledProcessError) as error:
        raise CannotUnpack(
            f"the sources of {commit}, an older version, cannot be put into {folder}: {error}"
        ) from error
    return OlderVersion(commit, folder / "src")


def _git(*arguments: str) -> bytes:
    command = ["git", "-C", str(ROOT), *arguments]
    try:
        return subprocess.run(command, check=True, capture_output=True, timeout=GIT_TIMEOUT_S).stdout
    except subprocess.TimeoutExpired as error:
        raise CannotUnpack(f"no answer within {GIT_TIMEOUT_S:.0f} s: {' '.join(command)}") from error
