"""The Java of the tests' Spark starts quickly: what shortens it arrives there."""

from __future__ import annotations

from typing import Any

import pytest

from support.spark_classes import java_options

pytestmark = pytest.mark.spark


def test_spark_runs_with_the_options_of_one_that_ends_soon(spark: Any) -> None:
    java = spark.sparkContext._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
    assert set(java_options().split()) <= set(java.getInputArguments())
