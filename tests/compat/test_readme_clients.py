"""What the README tells users of other Kafka clients to type works against `strandline up`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compat.readme_clients import type_what_the_readme_says
from strandline.cli.cluster import EmbeddedCluster


@pytest.fixture
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    cluster = EmbeddedCluster(tmp_path_factory.mktemp("cluster"), 3)
    try:
        cluster.start()
        yield cluster.bootstrap_servers
    finally:
        cluster.stop(timeout_s=10)


def test_kcat_confluent_kafka_and_kafka_topics_work_as_it_is_written(bootstrap: str) -> None:
    type_what_the_readme_says(bootstrap)
