"""DescribeClientQuotas, AlterClientQuotas: quotas of users, client ids and addresses, read and written by any broker.

Nothing here puts a quota into effect: a change is written together with its announcement below /config/changes, in one
transaction, and every broker, this one too, acts on that (`quotas/quotas`). What is described is read for that: an
announcement may not have reached this broker, and who has altered a quota sees it whatever broker they ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import structlog
import trio

from strandline.broker.handlers.asking_zookeeper import PATIENCE_S, asking_zookeeper
from strandline.broker.network.request import RequestInHand
from strandline.broker.quotas.describing import entity_of, filter_of, parts_of
from strandline.broker.quotas.entities import IPS, InvalidQuota, QuotaEntity, address_at, quota_text, read_quota
from strandline.broker.quotas.quotas import Quotas, quota_standing
from strandline.protocol.errors import BrokerError, ErrorCode
from strandline.protocol.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterQuotaEntry,
    AlterQuotaResult,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaEntry,
    QuotaValue,
)
from strandline.protocol.znodes import CONFIG_CHANGES_PATH, CONFIG_PATH, ConfigChangeZnode, ConfigZnode
from strandline.runtime.coordination import (
    Coordination,
    Create,
    NoNode,
    SetData,
    TransactionFailed,
    Znode,
)

MAX_ENTRIES = 1000
"""Of one request: each is a transaction."""
DESCRIBED_PER_STEP = 200
MAX_ROUNDS = 20


class QuotaHandlers:
    """See the module."""

    def __init__(self, quotas: Quotas, coordination: Coordination, log: structlog.typing.FilteringBoundLogger) -> None:
        self._quotas = quotas
        self._coordination = coordination
        self._log = log

    # --- DescribeClientQuotas ----------------------------------------------------------------------------------------

    async def describe(self, request: RequestInHand[DescribeClientQuotasRequest]) -> DescribeClientQuotasResponse:
        wanted = filter_of(request.message.components, request.message.strict)
        standing = await asking_zookeeper(self._quotas.as_they_stand, trio.current_time() + PATIENCE_S)
        entries: list[QuotaEntry] = []
        for count, (entity, values) in enumerate(sorted(standing.items(), key=_path), 1):
            if values and wanted.matches(entity):
                found = [QuotaValue(key, float(value)) for key, value in sorted(values.items())]
                entries.append(QuotaEntry(parts_of(entity), found))
            if count % DESCRIBED_PER_STEP == 0:
                await trio.lowlevel.checkpoint()
        return DescribeClientQuotasResponse(ErrorCode.NONE, None, entries)

    # --- AlterClientQuotas -------------------------------------------------------------------------------------------

    async def alter(self, request: RequestInHand[AlterClientQuotasRequest]) -> AlterClientQuotasResponse:
        """One after the other, each by itself."""
        message = request.message
        if len(message.entries) > MAX_ENTRIES:
            text = f"one request alters the quotas of at most {MAX_ENTRIES} entities: send several"
            raise BrokerError(ErrorCode.POLICY_VIOLATION, text)
        until = trio.current_time() + PATIENCE_S
        results: list[AlterQuotaResult] = []
        altered: set[QuotaEntity] = set()
        for entry in message.entries:
            try:
                entity = entity_of(entry.entity)
                if entity in altered:
                    raise BrokerError(ErrorCode.INVALID_REQUEST, f"{entity.path} stands in the request twice")
                altered.add(entity)
                changes = _changes(entity, entry)
                if not message.validate_only:
                    for each in await asking_zookeeper(partial(self._znodes_of, entity, changes), until):
                        await asking_zookeeper(partial(self._alter_one, each, changes), until)
                    self._log.info(
                        "quotas altered", entity=entity.path, changes=changes, asked_by=str(request.context.peer)
                    )
                results.append(AlterQuotaResult(ErrorCode.NONE, None, entry.entity))
            except BrokerError as error:
                results.append(AlterQuotaResult(error.code, str(error.args[0]), entry.entity))
        return AlterClientQuotasResponse(results)

    async def _znodes_of(self, entity: QuotaEntity, changes: Mapping[str, str | None]) -> list[QuotaEntity]:
        """Where that is to be written. What is no longer set for an address is set for it nowhere, however others have
        spelled it, nor for what is none."""
        if entity.ip is None or any(changes.values()):
            return [entity]
        await self._coordination.sync()  # another broker, by another server, may have written
        [names] = await self._coordination.children_many([f"{CONFIG_PATH}/{IPS}"])
        return [QuotaEntity(ip=name) for name in names or () if address_at(name) == entity.ip]

    async def _alter_one(self, entity: QuotaEntity, changes: Mapping[str, str | None]) -> None:
        """Read, change, write on the condition that it is as it was read. What else stands there stays."""
        path = f"{CONFIG_PATH}/{entity.path}"
        for _ in range(MAX_ROUNDS):
            [znode] = await self._coordination.get_many([path])
            before = quota_standing(path, znode)
            if before.overrides is None:
                text = f"what stands there cannot be read ({before.why}): mend or delete the znode"
                raise BrokerError(ErrorCode.INVALID_CONFIG, text)
            after = {key: text for key, text in {**before.overrides, **changes}.items() if text is not None}
            if after == before.overrides:
                return
            if await self._is_written(entity, path, znode, after):
                return
        raise BrokerError(ErrorCode.REQUEST_TIMED_OUT, f"the quotas of {entity.path} keep changing: repeat")

    async def _is_written(self, entity: QuotaEntity, path: str, znode: Znode | None, overrides: dict[str, str]) -> bool:
        data = ConfigZnode(overrides).encode()
        write = Create(path, data) if znode is None else SetData(path, data, znode.stat.version)
        announce = Create(ConfigChangeZnode.SEQUENCE_PATH, ConfigChangeZnode(entity.path).encode(), sequence=True)
        try:
            await self._coordination.multi([write, announce])
        except TransactionFailed as error:
            if isinstance(error.cause, NoNode):
                for folder in (CONFIG_CHANGES_PATH, path.rpartition("/")[0]):
                    if await self._coordination.exists(folder) is None:
                        await self._coordination.create(folder, parents=True)
            return False
        return True


def _path(entry: tuple[QuotaEntity, Mapping[str, float]]) -> str:
    return entry[0].path


def _changes(entity: QuotaEntity, entry: AlterQuotaEntry) -> dict[str, str | None]:
    """Key → text, None: it is no longer set. BrokerError."""
    changes: dict[str, str | None] = {}
    for operation in entry.ops:
        key = operation.key
        if key in changes:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"{key[:100]} is given twice for {entity.path}")
        if operation.remove and key in entity.keys:
            changes[key] = None
            continue
        try:
            changes[key] = quota_text(read_quota(entity, key, repr(operation.value)))
        except InvalidQuota as error:
            raise BrokerError(ErrorCode.INVALID_REQUEST, str(error)) from error
    return changes
