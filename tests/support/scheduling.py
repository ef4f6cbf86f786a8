"""How `make test` spreads the tests over processes.

The integration tests start brokers, ZooKeeper and Spark, and wait for real time-outs, most of the time without
computing. So all of them run one after another in one process, which begins with them; the other processes meanwhile
compute everything else, file by file, at a lower priority, and the first one helps them when it is done.

A process may die of a test. That test has failed, and another process runs what was left of its share, once.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

INTEGRATION = "tests/integration/"


class RealProcessesApart(LoadScopeScheduling):
    def __init__(self, config: pytest.Config, log: Any) -> None:
        config.option.loadscopereorder = False  # not the scopes with most tests first, but as collected
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        """What runs together, in one process: the whole of the integration tests, or a file."""
        return INTEGRATION if nodeid.startswith(INTEGRATION) else nodeid.partition("::")[0]

    def remove_node(self, node: WorkerController) -> str | None:
        """The test that the process died of, if it still had any. xdist would give others all of its files again, the
        test that it died of too, and wait for ever for who got a file of which nothing was left."""
        left = [test for file in self.assigned_work.pop(node).values() for test, is_done in file.items() if not is_done]
        for test in left[1:]:
            self.workqueue.setdefault(self._split_scope(test), {})[test] = False
        for other in self.nodes:
            self._reschedule(other)
        return left[0] if left else None

    def _reschedule(self, node: WorkerController) -> None:
        """Give a process work as soon as it has no more than two tests: it begins none before it knows the next one.
        One that replaces another has none before it has collected the tests."""
        if node.shutting_down or node not in self.registered_collections:
            return
        with suppress(OSError):  # it is dead: what it got is taken from it when that is heard of
            while self.workqueue and self._pending_of(self.assigned_work[node]) <= 2:
                self._assign_work_unit(node)
        if not self.workqueue:
            node.shutdown()
