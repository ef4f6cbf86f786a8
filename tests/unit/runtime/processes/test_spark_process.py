"""What a process of Spark says when it fails."""

from __future__ import annotations

import os

import pytest

from strandline.runtime.processes.spark_process import HIDE_TRACEBACK, fail_without_traceback, hide_traceback


@pytest.mark.parametrize(
    ("main_module", "environment", "is_hidden"),
    [
        ("pyspark.daemon", {}, True),
        ("pyspark.sql.worker.plan_data_source_read", {}, True),
        ("pyspark.daemon", {"STRANDLINE_DEBUG": "1"}, False),
        ("", {}, False),
        ("my_job", {}, False),
    ],
)
def test_only_processes_of_spark_hide_their_traceback(
    main_module: str, environment: dict[str, str], is_hidden: bool
) -> None:
    hide_traceback(main_module, environment)
    assert (HIDE_TRACEBACK in environment) == is_hidden


def test_a_program_keeps_its_environment() -> None:
    fail_without_traceback()
    assert HIDE_TRACEBACK not in os.environ
