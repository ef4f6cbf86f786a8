"""What both implementations of the coordination seam share: writes as waves of prepared transactions.

Each prepares a transaction in its own form `P`, runs a wave of those, and reads their answers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

import trio

from strandline.runtime.coordination import CoordinationError, Create, NodeExists, NoNode, Operation, OperationResult
from strandline.runtime.zookeeper.paths import ancestors

P = TypeVar("P")


class PreparedWrites(ABC, Generic[P]):
    """`create`, `multi` and `multi_many` of a `Coordination`."""

    @abstractmethod
    def _transaction(self, operations: Sequence[Operation]) -> P:
        """CoordinationError for one that may not be sent."""

    @abstractmethod
    async def _run(self, prepared: Sequence[P]) -> None:
        """Send them; each has its answer afterwards."""

    @abstractmethod
    def _transaction_result(
        self, operations: Sequence[Operation], prepared: P
    ) -> list[OperationResult] | CoordinationError: ...

    @abstractmethod
    async def _create(self, operation: Create) -> str:
        """The path that was created, below the chroot."""

    async def create(
        self,
        path: str,
        data: bytes | None = None,
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        parents: bool = False,
    ) -> str:
        operation = Create(path, data, ephemeral, sequence)
        try:
            return await self._create(operation)
        except NoNode:
            if not parents:
                raise
        for ancestor in ancestors(path):
            try:
                await self._create(Create(ancestor))
            except NodeExists:
                continue
        return await self._create(operation)

    async def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        (result,) = await self.multi_many([operations])
        if isinstance(result, CoordinationError):
            raise result
        return result

    async def multi_many(
        self, transactions: Sequence[Sequence[Operation]]
    ) -> list[list[OperationResult] | CoordinationError]:
        results: list[list[OperationResult] | CoordinationError] = [[] for _ in transactions]
        wave: dict[int, P] = {}
        for index, operations in enumerate(transactions):
            if not operations:
                continue
            try:
                wave[index] = self._transaction(operations)
            except CoordinationError as error:
                results[index] = error
        if wave:
            await self._run(list(wave.values()))
        else:
            await trio.lowlevel.checkpoint()
        for index, prepared in wave.items():
            results[index] = self._transaction_result(transactions[index], prepared)
        return results
