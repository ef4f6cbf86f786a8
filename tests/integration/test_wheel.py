"""The wheel, installed into an empty environment and used from another folder than the repository."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("protocol", "runtime", "storage", "controller", "broker", "client", "spark_connector", "cli", "testkit")
BUILT_FROM = ("pyproject.toml", "setup.py", "README.md", "src", *PACKAGES)

READ_WITH_SPARK = """
import os, sys
from strandline.cli.java import spark_environment
os.environ["JAVA_HOME"] = spark_environment()["JAVA_HOME"]  # the environment is not activated, its python is not named
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
)
rows = (
    spark.read.format("strandline").option("kafka.bootstrap.servers", sys.argv[1]).option("subscribe", "greetings")
    .load().selectExpr("cast(value as string) v").collect()
)
print("ROWS", sorted(row.v for row in rows))
spark.stop()
"""


def run(*command: object, folder: Path, **settings: object) -> str:
    """Output of a command that must succeed; what it said is shown when it does not."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYSPARK"))}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        **settings,
    )
    assert done.returncode == 0, (
        f"{command[:4]} ended with {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-6000:]}"
    )
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the sdist, as a user's pip would, out of a copy: building leaves its traces in the source folder."""
    copy = tmp_path_factory.mktemp("source")
    for name in BUILT_FROM:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(
                source, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
            )
        else:
            shutil.copy(source, copy / name)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", copy / "dist", copy, folder=copy)
    (built,) = (copy / "dist").glob("strandline-*.whl")
    return built


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that has nothing to do with the repository; its names must not come into the way."""
    folder = tmp_path_factory.mktemp("elsewhere")
    for name in ("client", "storage"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("raise ImportError('the wrong one')\n")
    return folder


@pytest.fixture(scope="module")
def commands(wheel: Path, elsewhere: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The `bin` folder of an environment with the wheel and its dependencies, no extras."""
    environment = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", environment, folder=elsewhere)
    install(environment / "bin", str(wheel), elsewhere)
    yield environment / "bin"
    shutil.rmtree(environment)  # A gigabyte.


@pytest.fixture(scope="module")
def with_extras(wheel: Path, commands: Path, elsewhere: Path) -> Path:
    """The same environment with the embedded cluster and Spark."""
    install(commands, f"{wheel}[local,spark]", elsewhere)
    return commands


def install(commands: Path, what: str, folder: Path) -> None:
    """Bytecode is written where it is needed: most of what Spark and pandas bring is never imported here."""
    pip = (commands / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile")
    run(*pip, "--constraint", ROOT / "constraints.txt", what, folder=folder)


@pytest.fixture
def cluster(with_extras: Path, elsewhere: Path) -> Iterator[Path]:
    """`strandline up`, from elsewhere; stopped again."""
    data = elsewhere / "cluster"
    run(with_extras / "strandline", "up", "--data", data, folder=elsewhere)
    yield data
    run(with_extras / "strandline", "down", "--data", data, folder=elsewhere)


def test_the_wheel_holds_every_module(wheel: Path) -> None:
    expected = {
        f"strandline/{path.relative_to(ROOT).as_posix()}" for name in PACKAGES for path in (ROOT / name).rglob("*.py")
    }
    expected |= {"strandline/__init__.py", "strandline/aio.py", "strandline/py.typed", "pyspark_strandline/__init__.py"}
    expected |= {"strandline_driver_python.py", "strandline_driver_python.pth"}
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert expected - held == set()
    assert {name for name in held - expected if name.endswith(".py")} == set()


def test_it_runs_in_an_empty_environment_without_extras(commands: Path, elsewhere: Path) -> None:
    imports = "; ".join(f"import strandline.{name}" for name in PACKAGES if name != "spark_connector")
    public = "from strandline import Producer, Consumer, Admin, TopicPartition"
    place = run(
        commands / "python",
        "-c",
        f"{imports}; {public}; import strandline; print(strandline.__file__)",
        folder=elsewhere,
    )
    assert Path(place.strip()).is_relative_to(commands.parent)
    assert "up" in run(commands / "strandline", "--help", folder=elsewhere)


def test_the_simulator_comes_with_it(commands: Path, elsewhere: Path) -> None:
    simulate = (commands / "strandline", "simulate", "--until", "1s", "--seed")
    told = run(*simulate, "1", "--trace", "--page", elsewhere / "run.html", folder=elsewhere)
    assert "STRUCK" in told or "no faults" in told
    assert "\ndigest " in told and "Who led" in (elsewhere / "run.html").read_text()
    assert "\n2 seeds, 0 with findings; " in run(*simulate[:-1], "--seeds", "1-2", folder=elsewhere)


@pytest.mark.spark
def test_a_cluster_comes_up_and_spark_reads_it_without_registering(
    with_extras: Path, cluster: Path, elsewhere: Path
) -> None:
    strandline = with_extras / "strandline"
    state = run(strandline, "status", "--data", cluster, "--output", "json", folder=elsewhere)
    bootstrap = json.loads(state)["bootstrap_servers"]
    run(strandline, "topics", "create", "greetings", "-p", "2", "-b", bootstrap, folder=elsewhere)
    run(strandline, "produce", "-t", "greetings", "-b", bootstrap, folder=elsewhere, input="hello\nworld\n")
    (elsewhere / "read_with_spark.py").write_text(READ_WITH_SPARK)
    shown = run(with_extras / "python", "read_with_spark.py", bootstrap, folder=elsewhere)
    assert "ROWS ['hello', 'world']" in shown
