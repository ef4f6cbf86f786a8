"""Overrides as they stand in ZooKeeper, written by us or by a Kafka that knows more keys than we do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from strandline.protocol.znodes import ConfigZnode, InvalidZnode
from strandline.runtime.coordination import ConnectionLost, Coordination, CoordinationError, SessionExpired, Znode


class Standing(NamedTuple):
    """Key → text, {} where there is no such znode; None where it cannot be read, and why."""

    overrides: dict[str, str] | None
    why: str = ""


def standing_of(path: str, znode: Znode | CoordinationError | None) -> Standing:
    if isinstance(znode, CoordinationError):
        return Standing(None, str(znode))
    try:
        return Standing({} if znode is None else ConfigZnode.decode(path, znode.data).config)
    except InvalidZnode as error:
        return Standing(None, str(error))


async def read_overrides(coordination: Coordination, paths: Sequence[str]) -> list[Standing]:
    """What each znode says, in the order of `paths`. ConnectionLost, SessionExpired."""
    return [standing_of(*found) for found in zip(paths, await get_each(coordination, paths), strict=True)]


async def get_each(coordination: Coordination, paths: Sequence[str]) -> list[Znode | CoordinationError | None]:
    """As `Coordination.get_many`, but where ZooKeeper refuses some (an access control list keeps us out), those alone
    have its error. ConnectionLost, SessionExpired."""
    try:
        return [*await coordination.get_many(paths)]
    except (ConnectionLost, SessionExpired):
        raise
    except CoordinationError as error:
        if len(paths) == 1:
            return [error]
        half = len(paths) // 2  # the refusal of one is that of all which were asked for with it
        return [*await get_each(coordination, paths[:half]), *await get_each(coordination, paths[half:])]
