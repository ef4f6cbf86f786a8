"""Becoming controller: one transaction creates the ephemeral `/controller` and raises `/controller_epoch`.

The epoch's version is read first, so everything rests on it: whoever was elected in between makes the transaction fail.
A `/controller` of this very broker is left over from an earlier session of it (or from an election whose answer was
lost): it is replaced in the same transaction, so it need not time out first. Nobody else can hold this broker's id
while this broker is registered under it.

A `/controller` of a broker whose process is gone is replaced in the same way, before its session ends: the transaction
checks that it is still that life which is registered. If it lives all the same, its epoch fences it, as it fences
whoever was paused, and its watch on `/controller` tells it.

Where `/controller_epoch/strandline` equals `/controller_epoch`, every term since the states were judged last
(`fail_over`) was one of ours. Then the same transaction raises both, so that neither a term that ends at once
nor a lost answer breaks the chain.
"""

from __future__ import annotations

from typing import NamedTuple

import structlog

from strandline.controller.controller_context import LiveBroker
from strandline.protocol import znodes
from strandline.protocol.znodes import BrokerIdZnode
from strandline.runtime.coordination import (
    MATCH_ANY_VERSION,
    Check,
    Coordination,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Operation,
    SetData,
    TransactionFailed,
    Watch,
    ZnodeStat,
)


class Won(NamedTuple):
    """An election: the new controller epoch and the version that `/controller_epoch` has because of it."""

    epoch: int
    epoch_zk_version: int
    follows_ours: bool
    """No controller of another kind was in charge since the states were judged last."""
    found_gone: LiveBroker | None = None
    """The controller before, if it was replaced because its process is gone."""


async def try_to_be_elected(
    coordination: Coordination,
    broker_id: int,
    timestamp_ms: int,
    watch: Watch,
    log: structlog.typing.FilteringBoundLogger,
    found_gone: LiveBroker | None = None,
) -> Won | None:
    """One attempt. None: somebody else is, or may be, controller; `watch` fires when `/controller` changes. found_gone:
    the life of a broker whose process is gone; it is replaced if it is controller."""
    epoch, epoch_zk_version = await _read_epoch(coordination)
    operations: list[Operation] = []
    stat = await coordination.exists(znodes.CONTROLLER_PATH, watch)
    if stat is not None:
        holder = await _holder(coordination, log)
        if holder == broker_id:
            found_gone = None
        elif found_gone is None or holder != found_gone.broker_id:
            return None
        else:
            registration = BrokerIdZnode.path(holder)
            its = await coordination.exists(registration)
            if its is None or (its.czxid, its.ephemeral_owner) != (found_gone.epoch, stat.ephemeral_owner):
                return None
            operations.append(Check(registration, its.version))
        operations.append(Delete(znodes.CONTROLLER_PATH, stat.version))
    mine = znodes.ControllerZnode(broker_id, timestamp_ms).encode()
    operations.append(Create(znodes.CONTROLLER_PATH, mine, ephemeral=True))
    raised = znodes.ControllerEpochZnode(epoch + 1).encode()
    follows_ours = await _our_last_epoch(coordination, log) == epoch
    if follows_ours:  # it cannot change without the epoch
        operations.append(SetData(znodes.OUR_CONTROLLER_EPOCH_PATH, raised, MATCH_ANY_VERSION))
    operations.append(SetData(znodes.CONTROLLER_EPOCH_PATH, raised, epoch_zk_version))
    try:
        results = await coordination.multi(operations)
    except TransactionFailed as error:
        log.info("another broker was faster in the election", error=str(error.cause))
        return None
    raised_to = results[-1]
    assert isinstance(raised_to, ZnodeStat)
    return Won(epoch + 1, raised_to.version, follows_ours, found_gone if stat is not None else None)


async def _read_epoch(coordination: Coordination) -> tuple[int, int]:
    """(controller epoch, znode version); creates the znode in a new cluster."""
    path = znodes.CONTROLLER_EPOCH_PATH
    if await coordination.exists(path) is None:
        try:
            await coordination.create(path, znodes.ControllerEpochZnode(0).encode())
        except NodeExists:
            pass  # another broker of this new cluster was faster
    znode = await coordination.get(path)
    return znodes.ControllerEpochZnode.decode(path, znode.data).epoch, znode.stat.version


async def _our_last_epoch(coordination: Coordination, log: structlog.typing.FilteringBoundLogger) -> int:
    """Controller epoch of the last term that a broker of this program had; −1 where there was none."""
    path = znodes.OUR_CONTROLLER_EPOCH_PATH
    [znode] = await coordination.get_many([path])
    try:
        return -1 if znode is None else znodes.ControllerEpochZnode.decode(path, znode.data).epoch
    except znodes.InvalidZnode as error:
        log.error("our last controller epoch cannot be read", error=str(error))
        return -1


async def _holder(coordination: Coordination, log: structlog.typing.FilteringBoundLogger) -> int | None:
    """Broker id in `/controller`, None when it is gone or cannot be read."""
    try:
        return znodes.ControllerZnode.decode(
            znodes.CONTROLLER_PATH, (await coordination.get(znodes.CONTROLLER_PATH)).data
        ).broker_id
    except NoNode:
        return None
    except znodes.InvalidZnode as error:
        log.error("cannot tell who is controller; delete the znode to start an election", error=str(error))
        return None
