"""How long a task waits for records where the user does not say: as long as Spark waits for its network."""

from __future__ import annotations

from strandline.spark_connector.options.request import SourceOptions
from strandline.spark_connector.options.table import DEFAULT_POLL_TIMEOUT_MS
from strandline.spark_connector.options.values import number, with_unit

NETWORK_TIMEOUT = "spark.network.timeout"


def poll_timeout_ms(options: SourceOptions) -> int:
    """kafkaConsumer.pollTimeoutMs, else spark.network.timeout, else its default."""
    if options.poll_timeout_ms is not None:
        return options.poll_timeout_ms
    return _network_timeout_ms() or DEFAULT_POLL_TIMEOUT_MS


def _network_timeout_ms() -> int | None:
    """What Spark is set to, in a task; None on the driver, where a Python worker is not told of any setting."""
    from pyspark import TaskContext

    context = TaskContext.get()
    text = context.getLocalProperty(NETWORK_TIMEOUT) if context is not None else None
    if text is None:
        return None
    seconds = number(text)
    return seconds * 1000 if seconds is not None else with_unit(text.strip())
