"""For `metrics_overhead.py`: a broker started with this folder in PYTHONPATH counts neither requests nor topics.

What is left are the looks at the clock that end a burst.
"""

from typing import Any

from strandline.broker.handlers.fetch import FetchHandler
from strandline.broker.network.connection import Connection
from strandline.broker.network.request_counts import CountsByApi

_new_slot: Any = Connection.new_slot


def _uncounted_slot(connection: Connection, counts: object = None, times: object = None) -> object:
    return _new_slot(connection)


def _nothing(*arguments: object) -> None:
    return None


uncounted: Any = _uncounted_slot
nothing: Any = _nothing
Connection.new_slot = uncounted
CountsByApi.of_request = nothing
FetchHandler._count = nothing
