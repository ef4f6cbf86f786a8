"""What the demo produces: every line of every `.py` file of the running Python's standard library.

A file becomes the pieces between its `\\n`: joined again they are the file, byte by byte. So an empty file is one empty
record, a file that ends in `\\n` has an empty last one, `\\r` and bytes that are not UTF-8 stay as they are.
"""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FOREIGN = {"site-packages", "dist-packages", "__pycache__"}
SINGLE_MODULES = "(single modules)"


@dataclass(frozen=True, slots=True)
class SourceFile:
    """`key`: its path below the library, as the file system spells it; `content`: as it was when the demo began."""

    key: bytes
    content: bytes

    @property
    def name(self) -> str:
        return os.fsdecode(self.key)

    @property
    def lines(self) -> list[bytes]:
        return self.content.split(b"\n")

    @property
    def lines_count(self) -> int:
        return self.content.count(b"\n") + 1

    @property
    def package(self) -> str:
        """The top-level package it belongs to."""
        return top_level_package(self.name)


def top_level_package(name: str) -> str:
    folder, slash, _ = name.partition("/")
    return folder if slash else SINGLE_MODULES


def standard_library(limit: int | None = None) -> list[SourceFile]:
    """The files, sorted by path; at most `limit` of them. One that cannot be read is left out."""
    root = Path(sysconfig.get_path("stdlib"))
    files: list[SourceFile] = []
    for path in sorted(_python_files(root)):
        if limit is not None and len(files) >= limit:
            break
        try:
            files.append(SourceFile(os.fsencode(path.relative_to(root)), path.read_bytes()))
        except OSError:
            continue
    return files


def _python_files(root: Path) -> Iterator[Path]:
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = [name for name in subfolders if name not in _FOREIGN]
        yield from (Path(folder, name) for name in names if name.endswith(".py"))
