"""Files of `key=value` lines, as `meta.properties` is one: read, and changed where they stand.

`#` and `!` begin a comment line. Spaces round key and value do not count.
"""

from __future__ import annotations

import re
from contextlib import closing

from strandline.runtime.disk import Disk, read_file, write_whole

MAX_BYTES = 2**20


def parse_properties(text: str) -> dict[str, str]:
    """key -> value; of a key that stands there twice the last one."""
    pairs = (line.partition("=") for line in text.splitlines() if line.strip() and line.strip()[0] not in "#!")
    return {key.strip(): value.strip() for key, _, value in pairs}


def dash_out(disk: Disk, path: str, key: str) -> None:
    """Put dashes over the value of `key`, one for each byte; a key without value, or that is not there, gets one. In
    place and durably: that takes no space and no new name, so a full disk allows it. Blocking. OSError."""
    content = read_file(disk, path, max_bytes=MAX_BYTES)
    found = re.search(rb"^%s=([^\r\n]+)" % re.escape(key.encode()), content, re.MULTILINE)
    if found is not None:
        position, data = found.start(1), b"-" * len(found[1])
    else:
        position, data = len(content), b"\n%s=-\n" % key.encode()
    with closing(disk.open(path)) as file:
        write_whole(file, data, position)
        file.fsync()
