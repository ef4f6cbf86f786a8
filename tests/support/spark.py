"""A Spark session in this process, with two task slots, for tests and benchmarks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from strandline.cli.java import spark_environment

SHORT_LIVED_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options for a Spark that ends within a minute or two: the code that Java's second compiler and its parallel collector
make faster does not run long enough to give back what they cost, a quarter of the processor's time."""


@contextmanager
def spark_session(folder: Path, **settings: str) -> Iterator[Any]:
    """Listens on loopback only and writes to `folder`. `settings`: more of Spark's, with `__` for a dot."""
    from pyspark.sql import SparkSession

    os.environ.update(spark_environment())
    builder = (
        SparkSession.builder.config("spark.master", "local[2]")
        .appName("strandline")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.local.dir", str(folder))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    )
    for name, value in settings.items():
        builder = builder.config(name.replace("__", "."), value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()
