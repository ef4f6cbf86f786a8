"""Jobs of Spark that strike faults (`support.spark_faults`), each in a process of its own: `run` starts one.

    python -m support.spark_job batches SERVERS TOPIC FAULTS short|long
    python -m support.spark_job stream SERVERS FROM TO CHECKPOINT [OPTION=VALUE …]
    python -m support.spark_job restores SERVERS FOLDER TOPIC FAULTS
    python -m support.spark_job restore SERVERS FOLDER TOPIC fresh|resume

`batches` writes once for each point and kind of fault (or some of them), with two executors, and prints a line of JSON
each. `stream` copies a topic in small batches until it has all; TO is a topic, or a folder for Parquet (a path), and
the options are the source's. `restores` brings an archive into TOPIC-0, TOPIC-1, … with a fault each, `restore` once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from strandline.runtime.disk_posix import PosixDisk
from strandline.spark_connector.pipelines.restore import RestoreOptions, RestoreSummary, restore
from support.spark import SHORT_LIVED_JAVA, spark_session
from support.spark_faults import CASES, RESTORE_CASES, Faults

ROWS = 600
VALUES = 200
"""Each value stands so many times less than there are rows: equal rows are rows of their own."""
PATIENCE_S = 400
TWO_EXECUTORS = {
    "spark__executor__memory": "512m",
    "spark__executor__extraJavaOptions": SHORT_LIVED_JAVA,
    "spark__task__maxFailures": "4",
    "spark__speculation": "true",
    "spark__speculation__interval": "100ms",
    "spark__speculation__quantile": "0.5",
    "spark__speculation__multiplier": "1.1",
    "spark__speculation__minTaskRuntime": "2s",
    "spark__excludeOnFailure__enabled": "false",
}
"""Each task is tried again, and copied where it takes long."""
TESTS = Path(__file__).parents[1]


def run(faults: Faults, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A job to its end."""
    others = faults.environment()
    environment = {**os.environ, **others, "PYTHONPATH": f"{TESTS}:{others['PYTHONPATH']}"}
    command = [sys.executable, "-m", "support.spark_job", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)


def expected_of_batches(which: str) -> Counter[bytes]:
    """All values, with how often each stands, once `batches` has ended."""
    return Counter(
        {b"%d:%d" % (case, value): ROWS // VALUES for case in range(len(CASES[which])) for value in range(VALUES)}
    )


def batches(servers: str, topic: str, folder: str, which: str) -> None:
    faults = Faults(Path(folder))
    with session("local-cluster[2,1,512]", **TWO_EXECUTORS) as spark:
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


def stream(servers: str, source: str, target: str, checkpoint: str, *options: str) -> None:
    with session("local[2,4]") as spark:
        read = {"startingOffsets": "earliest", "includeHeaders": "true", "maxOffsetsPerTrigger": "200"}
        read |= dict(each.split("=", 1) for each in options)
        frame = spark.readStream.format("strandline").options(servers=servers, **read).load(source)
        if "/" in target:
            writer = frame.writeStream.format("parquet").option("path", target)
        else:
            frame = frame.drop("topic", "partition")
            writer = frame.writeStream.format("strandline").options(servers=servers, topic=target)
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()


def restores(servers: str, folder: str, topic: str, faults_folder: str) -> None:
    faults = Faults(Path(faults_folder))
    with session("local-cluster[2,1,512]", **TWO_EXECUTORS) as spark:
        for number, (point, times, kind) in enumerate(RESTORE_CASES):
            faults.arm(point, times, kind)
            done = restored(spark, servers, folder, f"{topic}-{number}")
            case = {"case": [point, times, kind], "has_struck": faults.has_struck, "written": done.written}
            sys.stdout.write(json.dumps(case) + "\n")
            sys.stdout.flush()
            faults.disarm()
            faults.release()


def restore_once(servers: str, folder: str, topic: str, how: str) -> None:
    with session("local[2]") as spark:
        done = restored(spark, servers, folder, topic, resume=how == "resume")
        sys.stdout.write(json.dumps({"verified": done.verified, "written": done.written}) + "\n")


def restored(spark: Any, servers: str, folder: str, topic: str, **options: Any) -> RestoreSummary:
    return restore(spark, RestoreOptions(servers, folder, topic, **options), PosixDisk())


def session(master: str, **settings: str) -> Any:
    """Small Arrow batches: many points to die at."""
    small = {"spark__master": master, "spark__sql__execution__arrow__maxRecordsPerBatch": "50"}
    return spark_session(Path(tempfile.mkdtemp()), **small, **settings)


JOBS: dict[str, Callable[..., None]] = {
    "batches": batches,
    "stream": stream,
    "restores": restores,
    "restore": restore_once,
}


if __name__ == "__main__":
    JOBS[sys.argv[1]](*sys.argv[2:])
