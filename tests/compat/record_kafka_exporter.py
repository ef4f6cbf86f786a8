"""Write anew what a real kafka_exporter tells about a cluster of ours, beside what sarama is told:

PYTHONPATH=tests python -m compat.record_kafka_exporter PATH_OF_A_KAFKA_EXPORTER
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

from compat.exporter_site import kill, staged
from compat.kafka_exporter import facts_of, golden_path, series_in
from compat.metrics_site import VICTIM, until
from strandline.cli.cluster import EmbeddedCluster
from strandline.runtime.loopback import LOOPBACK, free_port


def record(exporter: str, cluster: EmbeddedCluster, phase: str, bootstrap: str) -> None:
    """With an exporter that starts now, so that it has seen nothing before. Where scrapes share what is found, it may
    lose the last series of a page."""
    address = f"{LOOPBACK}:{free_port()}"
    servers = [f"--kafka.server={server}" for server in bootstrap.split(",")]
    process = subprocess.Popen([exporter, *servers, f"--web.listen-address={address}", "--concurrent.enable"])

    def page() -> str | None:
        try:
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
                return str(answer.read().decode())
        except ConnectionError:
            return None
        except OSError as error:
            if isinstance(getattr(error, "reason", None), ConnectionRefusedError):
                return None
            raise

    try:
        told = series_in(until(page, "the exporter does not serve"))
    finally:
        process.kill()
        process.wait()
    series = [[each.name, dict(each.labels), value] for each, value in sorted(told.items())]
    lines = ",\n".join(json.dumps(each) for each in series)
    text = f'{{"facts": {json.dumps(facts_of(bootstrap))},\n"series": [\n{lines}\n]}}\n'
    golden_path(phase).write_text(text)


if __name__ == "__main__":
    with staged(Path(tempfile.mkdtemp(prefix="exporter-"))) as cluster:
        record(sys.argv[1], cluster, "at-rest", cluster.bootstrap_servers)
        kill(cluster)
        living = [str(cluster.address(each)) for each in cluster.broker_ids if each != VICTIM]
        record(sys.argv[1], cluster, "killed", ",".join(living))
