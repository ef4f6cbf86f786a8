"""What this process is made of, for people who ask a broker about itself."""

from __future__ import annotations

import platform

import kazoo.version
import trio

from strandline import __version__


def versions() -> dict[str, str]:
    """Name → version: ours, Python's, the event loop's, the ZooKeeper client's."""
    return {
        "strandline": __version__,
        "python": platform.python_version(),
        "trio": trio.__version__,
        "kazoo": kazoo.version.__version__,
    }
