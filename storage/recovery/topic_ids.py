"""Whose log a folder holds: the topic id in its `partition.metadata` (text: `version: 0`, `topic_id: <22 characters>`).

A log whose file is missing or empty has no id yet, and becomes the log of the topic that has its name. So a file that
cannot be read, or says the id of zeros that no topic has, must not count as none: the log is refused, and the file
stays. Only what we write and do not sync may be torn where the power failed: a beginning of that text, zeros behind.
"""

from __future__ import annotations

import re

from strandline.protocol.types import NO_TOPIC_ID, TopicId
from strandline.runtime.disk import read_file, remove_files
from strandline.storage.disk.checkpoints import PARTITION_METADATA, decode_topic_id
from strandline.storage.disk.storage_context import StorageContext
from strandline.storage.errors import UnreadableTopicId

_WHOLE = re.compile(rb"version\s*:\s*0\s+topic_id\s*:\s*([A-Za-z0-9_-]{22})\s*")
_TEXT = b"version: 0\ntopic_id: "
_MAX_BYTES = 2**16


def read_topic_id(context: StorageContext, folder: str, *, power_failed: bool) -> TopicId | None:
    """Of the log in `folder`; None where it has none, or a torn one. Blocking. UnreadableTopicId; OSError from the
    disk."""
    path = f"{folder}/{PARTITION_METADATA}"
    try:
        content = read_file(context.disk, path, max_bytes=_MAX_BYTES)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise UnreadableTopicId(path, str(error)) from error
    text = content.rstrip(b"\0")
    if not content:
        return None
    if (parts := _WHOLE.fullmatch(text)) is not None:
        if (topic_id := decode_topic_id(parts[1].decode())) != NO_TOPIC_ID:
            return topic_id
        raise UnreadableTopicId(path, "it says an id of zeros")
    if power_failed and text[: len(_TEXT)] == _TEXT[: len(text)] and re.fullmatch(rb"[\w-]{0,21}", text[len(_TEXT) :]):
        context.report("topic-id-torn", path=path)
        return None
    raise UnreadableTopicId(path, f"it begins with {content[:60]!r}")


def remove_torn(context: StorageContext, folder: str) -> None:
    """The log there is loaded and has no id: a start that knows nothing of the power failure finds none, too. Blocking.
    OSError from the disk."""
    remove_files(context.disk, [f"{folder}/{PARTITION_METADATA}"])
