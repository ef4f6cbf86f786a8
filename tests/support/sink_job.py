"""Jobs of Spark that write topics while faults strike, each in a process of its own (`support.sink_faults`).

    python -m support.sink_job batches SERVERS TOPIC FAULTS short|long
    python -m support.sink_job stream SERVERS FROM TOPIC CHECKPOINT

`batches` writes once for each point and kind of fault (or some of them), with two executors, and prints a line of JSON
each. `stream` copies a topic in small batches until it has all.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from support.sink_faults import CASES, Faults
from support.spark import spark_session

ROWS = 600
VALUES = 200
"""Each value stands so many times less than there are rows: equal rows are rows of their own."""


def batches(servers: str, topic: str, folder: str, which: str) -> None:
    faults = Faults(Path(folder))
    settings = {
        "spark__executor__memory": "512m",
        "spark__task__maxFailures": "4",
        "spark__speculation": "true",
        "spark__speculation__interval": "100ms",
        "spark__speculation__quantile": "0.5",
        "spark__speculation__multiplier": "1.1",
        "spark__speculation__minTaskRuntime": "2s",
        "spark__excludeOnFailure__enabled": "false",
    }
    with session("local-cluster[2,1,512]", **settings) as spark:
        for number, (point, times, kind) in enumerate(CASES[which]):
            faults.arm(point, times, kind)
            rows = spark.range(0, ROWS, 1, 2).selectExpr(
                "case when id % 3 = 0 then null else cast(id % 7 as string) end as key",
                f"concat('{number}:', id % {VALUES}) as value",
            )
            writer = rows.write.format("strandline").option("servers", servers).option("topic", topic)
            writer.mode("append").save()
            sys.stdout.write(json.dumps({"case": [point, times, kind], "has_struck": faults.has_struck}) + "\n")
            sys.stdout.flush()
            faults.disarm()
            faults.release()


def stream(servers: str, source: str, topic: str, checkpoint: str) -> None:
    with session("local[2,4]") as spark:
        frame = spark.readStream.format("strandline").option("servers", servers)
        frame = frame.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "200").load(source)
        query = frame.select("key", "value", "timestamp").writeStream.format("strandline").option("servers", servers)
        query = query.option("topic", topic).option("checkpointLocation", checkpoint)
        query.trigger(availableNow=True).start().awaitTermination()


def session(master: str, **settings: str) -> Any:
    """Small Arrow batches: many points to die at."""
    small = {"spark__master": master, "spark__sql__execution__arrow__maxRecordsPerBatch": "50"}
    return spark_session(Path(tempfile.mkdtemp()), **small, **settings)


if __name__ == "__main__":
    (batches if sys.argv[1] == "batches" else stream)(*sys.argv[2:])
