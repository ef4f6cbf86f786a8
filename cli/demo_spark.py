"""The demo's Spark job: lines and bytes per file and per top-level package, computed from the topic.

    python -m strandline.cli.demo_spark BOOTSTRAP TOPIC RESULT.json

A process of its own, so that Spark's and Java's messages go to a log file and everything ends with it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strandline.cli.demo_source import SINGLE_MODULES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def new_session() -> SparkSession:
    """A small local session on loopback; JAVA_HOME and PYSPARK_PYTHON are already in the environment."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("strandline demo")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def per_file(topic: DataFrame) -> DataFrame:
    """key, package, lines, bytes: as the files have them, each line but the last with its newline."""
    from pyspark.sql import functions as sql

    name = sql.col("key").cast("string")
    package = sql.when(sql.instr(name, "/") > 0, sql.split_part(name, sql.lit("/"), sql.lit(1)))
    return topic.groupBy("key", package.otherwise(SINGLE_MODULES).alias("package")).agg(
        sql.count("*").alias("lines"),
        (sql.sum(sql.length("value")) + sql.count("*") - 1).alias("bytes"),
    )


def compute(session: SparkSession, bootstrap_servers: str, topic: str) -> dict[str, Any]:
    """`files`: name → [lines, bytes]; `packages`: [name, files, lines, bytes], the largest first."""
    from pyspark.sql import functions as sql

    rows = (
        session.read.format("strandline")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .load()
    )
    files = per_file(rows).cache()  # Read once, asked twice.
    packages = (
        files.groupBy("package")
        .agg(sql.count("*").alias("files"), sql.sum("lines").alias("lines"), sql.sum("bytes").alias("bytes"))
        .orderBy(sql.desc("bytes"))
    )
    return {
        "files": {os.fsdecode(bytes(row.key)): [row.lines, row.bytes] for row in files.collect()},
        "packages": [[row.package, row.files, row.lines, row.bytes] for row in packages.collect()],
    }


def main(arguments: list[str]) -> None:
    bootstrap_servers, topic, result = arguments
    session = new_session()
    session.sparkContext.setLogLevel("WARN")
    Path(result).write_text(json.dumps(compute(session, bootstrap_servers, topic)))
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
