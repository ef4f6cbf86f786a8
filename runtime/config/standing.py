"""Overrides as they stand in ZooKeeper, written by us or by a Kafka that knows more keys than we do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from strandline.protocol.znodes import ConfigZnode, InvalidZnode
from strandline.runtime.coordination import Coordination, CoordinationError, Znode


class Standing(NamedTuple):
    """Key → text, {} where there is no such znode; None where it cannot be read, and why. is_refused: ZooKeeper
    does not show it; what stands there may be good."""

    overrides: dict[str, str] | None
    why: str = ""
    is_refused: bool = False


def standing_of(path: str, znode: Znode | CoordinationError | None) -> Standing:
    if isinstance(znode, CoordinationError):
        return Standing(None, str(znode), is_refused=True)
    try:
        return Standing({} if znode is None else ConfigZnode.decode(path, znode.data).config)
    except InvalidZnode as error:
        return Standing(None, str(error))


async def read_overrides(coordination: Coordination, paths: Sequence[str]) -> list[Standing]:
    """What each znode says, in the order of `paths`. ConnectionLost, SessionExpired."""
    return [standing_of(*found) for found in zip(paths, await coordination.get_each(paths), strict=True)]
