"""The broker's configuration with what ZooKeeper has over its file: `/config/brokers/<default>` and `…/<id>`.

It is read before anything that could delete runs, and again when it changes (`config_changes`). The merging is
`runtime.config.dynamic`; here it is read and told, once for as long as it stays the same.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec
import structlog

from strandline.protocol.znodes import ConfigZnode
from strandline.runtime.config.broker import BrokerConfig
from strandline.runtime.config.dynamic import DynamicReading, Layer, with_dynamic
from strandline.runtime.config.standing import Standing, read_overrides
from strandline.runtime.coordination import Coordination
from strandline.runtime.network import Address

FOR_ALL = "<default>"
ENTITY_TYPE = "brokers"


class DynamicConfig:
    def __init__(
        self, static: BrokerConfig, coordination: Coordination, log: structlog.typing.FilteringBoundLogger
    ) -> None:
        self.names = (FOR_ALL, str(static.broker_id))
        """Of the znodes that concern this broker, below /config/brokers; the lowest first."""
        self._paths = [ConfigZnode.path(name, ENTITY_TYPE) for name in self.names]
        self.static = static
        self.known: list[Layer] = []
        """`layers` as they were read last: before a broker serves, and at each change."""
        self._is_troubled = False
        self._coordination = coordination
        self._log = log
        self._told: tuple[object, ...] = ((), (), ())

    async def read(self) -> BrokerConfig:
        """What counts for a broker that starts now. CoordinationError."""
        found = await self._read()
        reading = with_dynamic(self.static, self.known)
        unreadable = tuple(each.why for each in found if each.why)
        self._is_troubled = bool(unreadable or reading.unusable)
        self._tell(reading, unreadable)
        return reading.config

    def bound(self, admin_port: Address) -> None:
        """The admin port listens there: who asks for `admin.listener` wants to reach it, and may have been left to
        port 0."""
        explicit = dict.fromkeys((*self.static.explicit, "admin.listener"))
        self.static = msgspec.structs.replace(self.static, admin_listener=admin_port, explicit=tuple(explicit))

    async def layers(self) -> list[Layer]:
        """As they stand in ZooKeeper, the lowest first. CoordinationError."""
        await self._read()
        return list(self.known)

    async def _read(self) -> list[Standing]:
        found = await read_overrides(self._coordination, self._paths)
        own = self._paths[-1]
        self.known = [Layer(path, each.overrides, path == own) for path, each in zip(self._paths, found, strict=True)]
        return found

    def troubled(self) -> Collection[str]:
        """The names, where something there cannot be read or used: what is deleted by it waits until it is mended."""
        return self.names if self._is_troubled else ()

    def _tell(self, reading: DynamicReading, unreadable: tuple[str, ...]) -> None:
        unusable = tuple(str(error) for error in reading.unusable)
        if (told := (reading.not_served, unusable, unreadable)) == self._told:
            return
        self._told = told
        for path in dict.fromkeys(each.path for each in reading.not_served):
            keys = {each.key: each.why for each in reading.not_served if each.path == path}
            self._log.warning("dynamic configuration without effect", path=path, keys=keys)
        if unusable or unreadable:
            self._log.error(
                "dynamic configuration is to be mended: nothing is deleted or compacted by what it may say",
                why=unreadable + unusable,
            )
