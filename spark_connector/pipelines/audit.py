"""An audit of all replicas whose pieces are compared by the tasks of a Spark job.

    summary = audit(spark, AuditOptions("localhost:9092"))
    assert summary.is_equal, [each for each in summary.partitions if each.state != "equal"]

What is compared, and what counts as a difference, is `client.replicas`; here it is spread over Spark's tasks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from strandline.client import errors
from strandline.client.replicas.audit import AuditOptions, AuditSummary, audited
from strandline.spark_connector.errors import UnknownTopic
from strandline.spark_connector.pipelines.audit_task import run_on_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["AuditOptions", "AuditSummary", "audit"]


def audit(
    spark: SparkSession,
    options: AuditOptions,
    *,
    on_step: Callable[[str], None] = lambda step: None,
    warn: Callable[[str], None] = lambda text: None,
) -> AuditSummary:
    """Compare; `on_step` is told what is done now. UnknownTopic, the client's errors; what a task raises comes as
    Spark's exception."""
    from strandline import Admin

    servers = {"bootstrap_servers": options.bootstrap_servers, "client_id": "strandline-audit"}
    settings = {**servers, **options.client_settings}
    with Admin(**settings) as admin:
        try:
            return audited(
                admin, options, lambda works: run_on_spark(spark, settings, works), on_step=on_step, warn=warn
            )
        except errors.UnknownTopic as error:
            raise UnknownTopic(str(error)) from None
