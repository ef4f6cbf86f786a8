"""Makes the disk of a broker slow: a folder with this file is on the broker's path, and each fsync takes so many
seconds longer as the file says that STRANDLINE_SLOW_DISK names. Where there is no such file, nothing is changed."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from pathlib import Path

_DELAY = Path(os.environ["STRANDLINE_SLOW_DISK"])


def _slow(sync: Callable[[int], None]) -> Callable[[int], None]:
    @functools.wraps(sync)
    def slowed(descriptor: int) -> None:
        try:
            delay_s = float(_DELAY.read_text())
        except FileNotFoundError:
            delay_s = 0.0
        time.sleep(delay_s)
        sync(descriptor)

    return slowed


os.fsync = _slow(os.fsync)
os.fdatasync = _slow(os.fdatasync)
