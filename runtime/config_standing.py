"""Overrides as they stand in ZooKeeper, written by us or by a Kafka that knows more keys than we do."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from strandline.protocol.znodes import ConfigZnode, InvalidZnode
from strandline.runtime.coordination import Coordination


async def read_overrides(
    coordination: Coordination, paths: Sequence[str], log: structlog.typing.FilteringBoundLogger
) -> list[dict[str, str] | None]:
    """Key → text of each znode, in the order of `paths`; {} where there is none, None where it cannot be read, which is
    told. CoordinationError."""
    standing: list[dict[str, str] | None] = []
    for path, znode in zip(paths, await coordination.get_many(paths), strict=True):
        try:
            standing.append({} if znode is None else ConfigZnode.decode(path, znode.data).config)
        except InvalidZnode as error:
            log.error(
                "configuration cannot be read, nothing is deleted by what it may say", path=path, why=error.reason
            )
            standing.append(None)
    return standing
