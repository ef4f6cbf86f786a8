"""What stands in for the source where it cannot be loaded, and what tells so: each in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""


def said_without(missing: str, program: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(missing=missing) + program], capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize("missing", ["pyarrow", "crc32c"])
def test_spark_finds_a_source_that_names_the_package_which_is_missing(missing: str) -> None:
    said = said_without(
        missing,
        """
import pyspark_strandline
from pyspark.sql.datasource import DataSource

assert issubclass(pyspark_strandline.DefaultSource, DataSource)
print(pyspark_strandline.DefaultSource.name())
try:
    pyspark_strandline.DefaultSource({})
except pyspark_strandline.NotInstalled as error:
    print(error)
""",
    )
    name, error = said.splitlines()
    assert name == "strandline"
    assert error.startswith(f"[STRANDLINE_NOT_INSTALLED] the source cannot be loaded by {sys.executable}, ")
    assert f"No module named '{missing}'" in error and "PYSPARK_PYTHON" in error and "strandline doctor" in error


def test_a_spark_before_4_is_named() -> None:
    said = said_without(
        "pyspark.sql.datasource",
        """
from strandline.spark_connector.errors import UnsupportedSpark
try:
    from strandline.spark_connector import StrandlineDataSource
except UnsupportedSpark as error:
    print(error)
""",
    )
    assert said.startswith("[UNSUPPORTED_SPARK_VERSION] sources in Python need Spark 4.0 or later, and pyspark ")
