"""How `make test` spreads the tests over processes.

The integration tests start brokers, ZooKeeper and Spark, and wait for real time-outs, most of the time without
computing. So all of them run one after another in one process, which begins with them; the other processes meanwhile
compute everything else, file by file, at a lower priority, and the first one helps them when it is done.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

INTEGRATION = "tests/integration/"


class RealProcessesApart(LoadScopeScheduling):
    def __init__(self, config: pytest.Config, log: Any) -> None:
        config.option.loadscopereorder = False  # not the scopes with most tests first, but as collected
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        """What runs together, in one process: the whole of the integration tests, or a file."""
        return INTEGRATION if nodeid.startswith(INTEGRATION) else nodeid.partition("::")[0]
