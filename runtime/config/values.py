"""What every part of the configuration needs: the error that says what is not allowed, and the largest numbers."""

from __future__ import annotations

import errno
import os
from typing import Any

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
MAX_TEXT_BYTES = 2**15 - 1
"""Of a value that a client sets: Kafka's protocol has no longer strings, so that Kafka's tools could not be told of it.
Values of a broker's file, and those that stand already, count at any length."""

Value = Any
"""What a key holds after reading: bool, int, float, str, a tuple of str, or None where the key was left out."""


class InvalidConfig(ValueError):
    """A configuration that cannot be used; one line that names key, value and what is allowed."""

    def __init__(self, key: str, value: object, why: str) -> None:
        shown = repr(value) if isinstance(value, str) else str(value)
        super().__init__(f"configuration {key}={shown[:200]}: {why}")
        self.key = key
        self.value = value
        self.why = why


def check_length(key: str, text: str) -> None:
    """InvalidConfig for what nobody may set (`MAX_TEXT_BYTES`)."""
    size = len(text.encode())
    if size > MAX_TEXT_BYTES:
        raise InvalidConfig(key, text, f"it has {size:,} bytes, and no value may have more than {MAX_TEXT_BYTES:,}")


_UNUSABLE_FOLDERS = {
    errno.EEXIST: "it is a file, not a folder; name a folder",
    errno.ENOTDIR: "a part of the path is a file, not a folder; name a folder",
    errno.ENOENT: "nothing can be created there; name a folder on a disk",
    errno.EACCES: "this user may not use it; give the folder to the user that runs the broker (chown)",
    errno.EPERM: "this user may not use it; give the folder to the user that runs the broker (chown)",
    errno.EROFS: "the file system is read-only; mount it for writing or name another folder",
    errno.ENOSPC: "the file system is full; free space or name another folder",
    errno.EDQUOT: "this user's quota is used up; free space or name another folder",
    errno.ELOOP: "it is a symbolic link where none is followed; name the folder itself",
    errno.ENAMETOOLONG: "the path is too long; name a shorter one",
    errno.EIO: "the disk fails (input/output error); replace it or name another folder",
}


def unusable_folder(key: str, path: str, error: OSError) -> InvalidConfig:
    """What the operator should know where a folder that `key` names cannot be used."""
    number = error.errno or 0
    where = f"{error.filename}: " if error.filename and error.filename != path else ""
    reason = _UNUSABLE_FOLDERS.get(number, f"{os.strerror(number) if number else error}; mend it or name another")
    return InvalidConfig(key, path, where + reason)
