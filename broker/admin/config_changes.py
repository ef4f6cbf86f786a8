"""Configurations that change while the broker runs: who watches for it, what is read again, who takes it over.

Whoever changes one writes it below /config, then announces it by a child of /config/changes that names the entity
(KIP-226). Level triggered: what an announcement says is only where to look. The ones that stood there before the first
reading say nothing new; one that cannot be read may mean anything, and after a session was lost, or where their folder
is another one, some may have come and gone: then everything is read again. What could not be read or used is looked at
from time to time, since an operator may mend it with a tool that announces nothing.

Announcements are removed a quarter of an hour after this broker looked at them, as each Kafka does, so that they do not
pile up. By then all brokers that live have seen them; who was away reads everything again. No wall clock is asked:
where one is wrong, Kafka's, which go by the znodes' times, remove what others have not read yet.

A kind of entities that is served (topics, brokers, those that have quotas) is a row in `ConfigChanges.kinds`.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import structlog
import trio

from strandline.broker.admin.dynamic_config import ENTITY_TYPE, DynamicConfig
from strandline.broker.admin.topic_configs import TopicConfigs
from strandline.broker.patience import until_answered
from strandline.broker.replication.burst import Burst
from strandline.broker.replication.replicas import Replicas
from strandline.broker.steps import PARTITIONS_PER_STEP
from strandline.protocol.znodes import CONFIG_CHANGES_PATH, CONFIG_PATH, ConfigChangeZnode, ConfigZnode, InvalidZnode
from strandline.runtime.config.broker import BrokerConfig
from strandline.runtime.config.dynamic import CurrentConfig
from strandline.runtime.config.standing import read_overrides
from strandline.runtime.config.topic import TopicConfig, read_topic_config
from strandline.runtime.coordination import (
    ConnectionLost,
    Coordination,
    CoordinationError,
    Delete,
    NoNode,
    SessionExpired,
    WatchEvent,
)

MENDED_CHECK_S = 30.0
"""Between two looks at what could not be read or used."""
KEPT_S = 900.0
"""How long an announcement stays that was looked at (Kafka's `changeExpirationMs`)."""
REMOVED_AT_ONCE = 500
KINDS = (ENTITY_TYPE, "clients", "ips", "topics", "users")
"""Of entities that Kafka's tools configure, each a folder below /config."""
NO_FOLDER = -1
"""Stands for the czxid of a folder that is not there."""


class EntityKind(NamedTuple):
    """What there is to know of a kind of entities. read_again: reads those with these names, or all (None), and has
    whom they concern hear of it; CoordinationError. troubled: the names of those that wait to be mended."""

    read_again: Callable[[Collection[str] | None], Awaitable[None]]
    troubled: Callable[[], Collection[str]] = tuple


class ConfigChanges:
    """`begin` before anything runs that could delete, then `run`. `kinds`: what is served, a row for each kind; the
    others are named to the operator."""

    def __init__(
        self, static: BrokerConfig, coordination: Coordination, log: structlog.typing.FilteringBoundLogger
    ) -> None:
        """static: of the broker's file."""
        self.config = CurrentConfig(static)
        self.kinds: dict[str, EntityKind] = {}
        self.dynamic = DynamicConfig(static, coordination, log)
        self._coordination = coordination
        self._log = log
        self._folder_czxid = NO_FOLDER
        self._looked_at: dict[str, float] = {}
        """Announcement that stands in this folder → when it was looked at, by the loop's clock. Kafka keeps the highest
        number alone: one that an operator made by hand hides all that are announced after it there."""
        self._session_id = 0
        self._wake = trio.Event()

    async def begin(self) -> BrokerConfig:
        """The configuration to start with. Waits until ZooKeeper answers."""
        return await until_answered(self._begin)

    async def _begin(self) -> BrokerConfig:
        self._session_id = self._coordination.session_id
        self._folder_czxid = await self._find_folder()  # before what is in it: a later one is noticed as another one
        self._note_looked_at(await self._announcements())
        self.config.value = await self.dynamic.read()
        return self.config.value

    async def of_topics(self, names: Collection[str]) -> dict[str, TopicConfig]:
        """To load their logs by. Waits until ZooKeeper answers."""
        paths = [ConfigZnode.path(name) for name in names]
        found = await until_answered(lambda: read_overrides(self._coordination, paths))
        config = self.config.value
        return {name: read_topic_config(config, each.overrides).config for name, each in zip(names, found, strict=True)}

    async def run(self, topics: TopicConfigs, replicas: Replicas, burst: Burst) -> None:
        self.kinds[ENTITY_TYPE] = EntityKind(partial(self._read_brokers, topics), self.dynamic.troubled)
        self.kinds["topics"] = EntityKind(topics.read_again, topics.troubled)
        await until_answered(self._name_what_is_not_served)
        while True:
            self._wake = trio.Event()
            entities = await until_answered(self._changed_entities)
            if entities:
                await until_answered(partial(self._read_again, entities))
                await self._apply(topics, replicas, burst)
            await self._remove_outdated()
            while not await self._is_told():
                await self._remove_outdated()
                if to_mend := {f"{kind}/{name}" for kind, row in self.kinds.items() for name in row.troubled()}:
                    await until_answered(partial(self._read_again, to_mend))
                    await self._apply(topics, replicas, burst)

    async def _is_told(self) -> bool:
        """Waits for an announcement; False when it is time to look at what was to be mended."""
        with trio.move_on_after(MENDED_CHECK_S):
            await self._wake.wait()
        return self._wake.is_set()

    # --- what changed ------------------------------------------------------------------------------------------------

    async def _find_folder(self) -> int:
        stat = await self._coordination.exists(CONFIG_CHANGES_PATH)
        return NO_FOLDER if stat is None else stat.czxid

    async def _announcements(self) -> list[str]:
        """What else an operator keeps there is left alone."""
        try:
            names = await self._coordination.children(CONFIG_CHANGES_PATH, self._on_change)
            return [name for name in names if _ANNOUNCEMENT.fullmatch(name)]
        except NoNode:  # nothing is announced; whoever removed the folder may put it back
            await self._coordination.exists(CONFIG_CHANGES_PATH, self._on_change)
            return []

    def _on_change(self, _: WatchEvent) -> None:
        self._wake.set()

    async def _changed_entities(self) -> set[str]:
        """`<kind>/<name>` of what was announced since the last look; `<kind>/*` where all of them may be meant."""
        everything = {f"{kind}/*" for kind in self.kinds}
        names = await self._announcements()
        folder = await self._find_folder()
        if folder != self._folder_czxid:
            self._folder_czxid = folder
            self._looked_at.clear()
            self._wake.set()  # what stands in this one is noted by the next look
            return everything
        fresh = [name for name in names if name not in self._looked_at]
        entities: set[str] = set()
        untold: list[str] = []
        paths = [f"{CONFIG_CHANGES_PATH}/{name}" for name in fresh]
        for path, znode in zip(paths, await self._coordination.get_each(paths), strict=True):
            try:
                if isinstance(znode, CoordinationError):
                    raise znode
                entities |= everything if znode is None else {ConfigChangeZnode.decode(path, znode.data).entity_path}
            except (InvalidZnode, CoordinationError) as error:
                untold.append(str(error))
        if untold:
            entities |= everything
            text = "every configuration is read again: who changed is not said"
            self._log.warning(text, announcements=len(untold), why=untold[0])
        if self._session_id != self._coordination.session_id:
            self._session_id = self._coordination.session_id
            entities |= everything
        self._note_looked_at(names)
        return entities

    def _note_looked_at(self, standing: Sequence[str]) -> None:
        now = trio.current_time()
        self._looked_at = {name: self._looked_at.get(name, now) for name in standing}

    async def _read_again(self, entities: Collection[str]) -> None:
        names: dict[str, set[str]] = {}
        for entity in sorted(entities):
            kind, _, name = entity.partition("/")
            names.setdefault(kind, set()).add(name)
        for kind, its_names in names.items():
            if kind in self.kinds:
                await self.kinds[kind].read_again(None if "*" in its_names else its_names)
            else:
                self._tell_not_served(kind, sorted(its_names))

    async def _remove_outdated(self) -> None:
        """Some of what was looked at long ago. Should their folder be made anew meanwhile and one of the same number be
        taken for an old one: who finds another folder reads everything."""
        old = trio.current_time() - KEPT_S
        outdated = [name for name, looked_at in self._looked_at.items() if looked_at <= old]
        if not outdated:
            return
        with suppress(CoordinationError):  # it is tried again, by the next look at what stands there
            if await self._find_folder() == self._folder_czxid:
                some = [[Delete(f"{CONFIG_CHANGES_PATH}/{name}")] for name in outdated[:REMOVED_AT_ONCE]]
                await self._coordination.multi_many(some)

    # --- who takes it over -------------------------------------------------------------------------------------------

    async def _read_brokers(self, topics: TopicConfigs, names: Collection[str] | None) -> None:
        """What concerns this broker, if one of these names does."""
        if names is not None and not set(names).intersection(self.dynamic.names):
            return
        before = self.config.value
        later = self.config.change(await self.dynamic.read())
        if later:
            self._log.warning("these keys take effect at the next start", keys=later)
        if self.config.value != before:
            self._log.info("dynamic configuration changed")
            await topics.resolve_again()

    async def _apply(self, topics: TopicConfigs, replicas: Replicas, burst: Burst) -> None:
        """Every replica whose topic has another configuration now gets it; its high watermark may rise by it."""
        for count, partition in enumerate(list(replicas.partitions.values()), 1):
            config = topics.current(partition.topic_partition.topic, partition.topic_id) or partition.config
            is_news = config != partition.config and not partition.failed
            if is_news and partition.set_config(config):
                burst.changes.committed(partition)
            if count % PARTITIONS_PER_STEP == 0:
                await trio.lowlevel.checkpoint()
        burst.end()

    # --- small things ------------------------------------------------------------------------------------------------

    async def _name_what_is_not_served(self) -> None:
        """A courtesy: where these folders may not be read the broker goes on."""
        others = [kind for kind in KINDS if kind not in self.kinds]
        try:
            found = await self._coordination.children_many([f"{CONFIG_PATH}/{kind}" for kind in others])
        except (ConnectionLost, SessionExpired):
            raise
        except CoordinationError as error:
            self._log.warning("configurations of these kinds are not served", kinds=others, error=str(error))
            return
        for kind, names in zip(others, found, strict=True):
            self._tell_not_served(kind, names or ())

    def _tell_not_served(self, kind: str, names: Sequence[str]) -> None:
        if names:
            self._log.warning("configurations of this kind are not served", kind=kind, names=list(names)[:10])


_ANNOUNCEMENT = re.compile(r"config_change_[0-9]{10}", re.ASCII)
