"""The topics' own znodes: read, created, enlarged, removed. Partition states are `store`'s.

Each topic has an id and, below its own, a znode named by that id (`TopicIdZnode`). A topic that is created anew under
the same name has another one, while the versions of its other znodes begin at 0 again: whoever writes a partition state
without being the controller checks in the same transaction that the id's znode is there. Other tools make topics
without it, and old ones without an id: both are added here before any broker is told to lead such a topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec
import structlog

from strandline.controller.controller_context import Topic
from strandline.controller.store import MAX_ROUNDS, ClusterStore, TooManyConflicts
from strandline.protocol import znodes
from strandline.protocol.topic_name import InvalidTopicName, check_topic_name
from strandline.protocol.types import TopicId
from strandline.runtime.coordination import (
    MATCH_ANY_VERSION,
    Check,
    Coordination,
    Create,
    Delete,
    Operation,
    SetData,
    TransactionFailed,
    Znode,
    ZnodeStat,
)


class TopicStore:
    """One term's. `draw_id` gives an id to a topic that has none."""

    def __init__(
        self,
        coordination: Coordination,
        store: ClusterStore,
        draw_id: Callable[[], TopicId],
        log: structlog.typing.FilteringBoundLogger,
    ) -> None:
        self._coordination = coordination
        self._store = store
        self._draw_id = draw_id
        self._log = log
        self.unreadable: dict[str, None] = {}

    async def topics(self, names: Sequence[str]) -> dict[str, Topic]:
        """By name, each with an id and the id's znode, which are added where they are missing. Topics that are gone or
        cannot be read are left out."""
        topics: dict[str, Topic] = {}
        pending = list(names)
        for _ in range(MAX_ROUNDS):
            found = await self._coordination.get_many([znodes.TopicZnode.path(name) for name in pending])
            readable: dict[str, tuple[znodes.TopicZnode, ZnodeStat]] = {}
            for name, stored in zip(pending, found, strict=True):
                znode = self._decoded(name, stored)
                if stored is not None and znode is not None:
                    readable[name] = znode, stored.stat
            for name, topic_id in (await self._with_ids(readable)).items():
                znode, stat = readable[name]
                topics[name] = Topic(
                    name,
                    topic_id,
                    _as_tuples(znode.partitions),
                    stat.czxid,
                    _as_tuples(znode.adding_replicas),
                    _as_tuples(znode.removing_replicas),
                )
            pending = [name for name in readable if name not in topics]
            if not pending:
                return {name: topics[name] for name in names if name in topics}
        raise TooManyConflicts(f"{len(pending)} topics could not be given an id, first {pending[0]}")

    def _decoded(self, name: str, stored: Znode | None) -> znodes.TopicZnode | None:
        self.unreadable.pop(name, None)
        try:
            if stored is None:
                return None
            check_topic_name(name)  # it becomes a folder's on the brokers
            return znodes.TopicZnode.decode(znodes.TopicZnode.path(name), stored.data)
        except (znodes.InvalidZnode, InvalidTopicName) as error:
            self.unreadable[name] = None
            self._log.error("topic left out: its znode cannot be read", topic=name, error=str(error))
            return None

    async def _with_ids(self, found: Mapping[str, tuple[znodes.TopicZnode, ZnodeStat]]) -> dict[str, TopicId]:
        """The ids of those topics whose id has its znode now. The others were changed meanwhile: look again."""
        below = await self._coordination.children_many([znodes.TopicZnode.path(name) for name in found])
        ids: dict[str, TopicId] = {}
        additions: dict[str, tuple[TopicId, list[Operation]]] = {}
        for (name, (znode, stat)), children in zip(found.items(), below, strict=True):
            if znode.topic_id is None:
                # Another tool may have written the topic anew without its id; the logs have it still.
                former = znodes.TopicIdZnode.among(name, children or ())
                topic_id = former[0] if former else self._draw_id()
                id_path = znodes.TopicIdZnode.path(name, topic_id)
                data = msgspec.structs.replace(znode, topic_id=topic_id).encode()
                naming = SetData(znodes.TopicZnode.path(name), data, stat.version)
                additions[name] = topic_id, [naming, Check(id_path, MATCH_ANY_VERSION) if former else Create(id_path)]
            elif znodes.encode_uuid(znode.topic_id) in (children or ()):
                ids[name] = znode.topic_id
            else:
                additions[name] = znode.topic_id, [Create(znodes.TopicIdZnode.path(name, znode.topic_id))]
        outcomes = await self._store.fenced_many([operations for _, operations in additions.values()])
        for (name, (topic_id, _)), outcome in zip(additions.items(), outcomes, strict=True):
            if not isinstance(outcome, TransactionFailed):
                ids[name] = topic_id
        return ids

    async def create(self, topic: Topic, configs: dict[str, str]) -> bool:
        """Configuration, topic and the id's znode in one transaction. False if there is another topic of that name."""
        path, config_path = znodes.TopicZnode.path(topic.name), znodes.ConfigZnode.path(topic.name)
        config = znodes.ConfigZnode(configs).encode()
        data = znodes.TopicZnode(topic.topic_id, {p: list(r) for p, r in topic.assignment.items()}).encode()
        for _ in range(MAX_ROUNDS):
            existing, left_over = await self._coordination.get_many([path, config_path])
            if existing is not None:
                # After an ambiguous answer: it is ours if it has the id that nobody else could have drawn.
                znode = self._decoded(topic.name, existing)
                return znode is not None and znode.topic_id == topic.topic_id
            try:
                await self._store.fenced(
                    [
                        Create(config_path, config)
                        if left_over is None
                        else SetData(config_path, config, left_over.stat.version),
                        Create(path, data),
                        Create(znodes.TopicIdZnode.path(topic.name, topic.topic_id)),
                    ]
                )
                return True
            except TransactionFailed:
                continue
        raise TooManyConflicts(f"topic {topic.name} could not be created: its znodes keep changing")

    async def grow(self, topic: Topic, added: Mapping[int, Sequence[int]]) -> bool:
        """More partitions in its znode, in which all else stays. False if that is not of this topic any more, has other
        partitions than it, or a reassignment has begun."""
        path = znodes.TopicZnode.path(topic.name)
        for _ in range(MAX_ROUNDS):
            [stored] = await self._coordination.get_many([path])
            znode = self._decoded(topic.name, stored)
            if stored is None or znode is None or znode.topic_id != topic.topic_id:
                return False
            is_moving = any(znode.adding_replicas.values()) or any(znode.removing_replicas.values())
            if is_moving or znode.partitions.keys() != topic.assignment.keys():
                return False
            partitions = {**znode.partitions, **{p: list(replicas) for p, replicas in added.items()}}
            data = msgspec.structs.replace(znode, partitions=partitions).encode()
            try:
                await self._store.fenced([SetData(path, data, stored.stat.version)])
                return True
            except TransactionFailed:
                continue
        raise TooManyConflicts(f"topic {topic.name} could not be enlarged: its znode keeps changing")

    async def remove(self, topic: Topic) -> None:
        """Everything of this topic, and nothing of another one of its name: states first, then, in one transaction, the
        topic with what is below it, its configuration and the request to delete it, so that the intent stands until
        the last of it is gone. May be repeated from any point."""
        path = znodes.TopicZnode.path(topic.name)
        [below] = await self._coordination.children_many([path])
        is_this_one: list[Check] = []
        if below is not None:
            if znodes.encode_uuid(topic.topic_id) not in below:
                self._log.error("topic was made anew while it was being deleted: left alone", topic=topic.name)
                return
            is_this_one = [Check(znodes.TopicIdZnode.path(topic.name, topic.topic_id), MATCH_ANY_VERSION)]
        await self._store.delete_all(await self._states(path), under=is_this_one)
        last = [f"{path}/{child}" for child in below or ()]
        last += [path, znodes.ConfigZnode.path(topic.name), znodes.DeleteTopicZnode.path(topic.name)]
        found = await self._coordination.get_each(last)  # what may not be read may be deleted
        await self._store.fenced(
            [*is_this_one, *(Delete(path) for path, znode in zip(last, found, strict=True) if znode is not None)]
        )

    async def _states(self, topic_path: str) -> list[str]:
        """The znodes below `partitions`, children first."""
        folder = f"{topic_path}/partitions"
        partitions = [f"{folder}/{child}" for child in (await self._coordination.children_many([folder]))[0] or ()]
        below = await self._coordination.children_many(partitions)
        return [
            path
            for partition, children in zip(partitions, below, strict=True)
            for path in (*(f"{partition}/{child}" for child in children or ()), partition)
        ]


def _as_tuples(replicas: Mapping[int, list[int]]) -> dict[int, tuple[int, ...]]:
    return {partition: tuple(brokers) for partition, brokers in replicas.items()}
