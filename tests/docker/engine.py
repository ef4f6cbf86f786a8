"""A Docker engine of the test's own, the images that it needs, and docker-compose against it.

The engine keeps its folders and its socket in one place that is removed afterwards; `STRANDLINE_DOCKER_STATE` names a
folder to keep instead, so that a second run finds its images warm. Images that no registry offers here are made: the
base from Debian's packages (debootstrap), under the name that the Dockerfile asks for, and ZooKeeper and Prometheus on
top of it.

An engine rewrites the machine's packet filter when it starts: published ports of another one that runs would be gone.
So nothing is started beside another engine, unless `STRANDLINE_DOCKER_BESIDE` is set. The engine ends with its test
run, however that ends (the kernel sends it SIGTERM when the run is killed).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BASE_IMAGE = "python:3.11-slim-bookworm"
ZOOKEEPER_IMAGE = "zookeeper:3.9"
PROMETHEUS_IMAGE = "prom/prometheus:v3.5.0"
_FILES = {ZOOKEEPER_IMAGE: "zookeeper.Dockerfile", PROMETHEUS_IMAGE: "prometheus.Dockerfile"}
SUITE = "bookworm"
BUILD_TIMEOUT_S = 1800
START_TIMEOUT_S = 60
ANSWER_TIMEOUT_S = 20
_POLL_S = 0.2
_SOCKET_FOLDER = "strandline-engine-"
_PROC = Path("/proc")


class Failed(AssertionError):
    """A command failed; the text has what it printed."""


class NotHere(Exception):
    """This machine cannot run an engine, or does not reach what an image is made of."""


class LeftOver(Exception):
    """An engine of an earlier run is still there."""


def run(*command: str | Path, timeout_s: float = 120, env: Mapping[str, str] | None = None, stdin: str = "") -> str:
    """Its standard output. Failed with everything it printed when its exit code is not 0."""
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=timeout_s, env=env, input=stdin
    )
    if done.returncode:
        raise Failed(f"exit code {done.returncode}: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def strandline(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """The command on this machine."""
    return subprocess.run(
        [sys.executable, "-m", "strandline.cli", *words], capture_output=True, text=True, timeout=120, input=stdin
    )


class Engine:
    """One dockerd. `environment` is what docker and docker-compose need to find it."""

    def __init__(self, state: Path) -> None:
        self.state = state
        # A socket's path is limited to 108 bytes, whatever the folder is.
        self._socket_folder = Path(tempfile.mkdtemp(prefix=_SOCKET_FOLDER))
        self.host = f"unix://{self._socket_folder}/engine.sock"
        self.environment = {
            **without_what_steers_docker(os.environ),
            "DOCKER_HOST": self.host,
            "DOCKER_BUILDKIT": "0",
            "COMPOSE_DOCKER_CLI_BUILD": "0",
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        for command in ("docker", "docker-compose", "dockerd", "setpriv"):
            if shutil.which(command) is None:
                raise NotHere(f"there is no {command} on this machine")
        self.state.mkdir(parents=True, exist_ok=True)
        with (self.state / "engine.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *("setpriv", "--pdeathsig", "TERM", "dockerd", "-H", self.host),
                    *("--data-root", str(self.state / "data"), "--exec-root", str(self._socket_folder / "exec")),
                    *("--pidfile", str(self._socket_folder / "pid")),
                ],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                self.docker("version", timeout_s=ANSWER_TIMEOUT_S)
                return
            except (Failed, subprocess.TimeoutExpired) as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise NotHere(f"no Docker engine can be started here: {self._last_line()}") from error
                time.sleep(_POLL_S)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(10)
        shutil.rmtree(self._socket_folder, ignore_errors=True)

    def docker(self, *words: str, timeout_s: float = 120) -> str:
        return run("docker", *words, timeout_s=timeout_s, env=self.environment)

    def logs(self, container: str) -> str:
        """What it wrote to both of its outputs."""
        command = ["docker", "logs", container]
        done = subprocess.run(command, capture_output=True, text=True, env=self.environment, check=True, timeout=60)
        return done.stdout + done.stderr

    def starts_s(self, container: str, since_s: int) -> list[float]:
        """When it was started, first and again, in seconds since the epoch."""
        of_it = ("--filter", f"container={container}", "--filter", "event=start", "--format", "{{.TimeNano}}")
        events = self.docker("events", "--since", str(since_s), "--until", f"{time.time():.9f}", *of_it)
        return [int(line) / 1e9 for line in events.split()]

    def remove_containers(self) -> None:
        """Those of a run that was killed: a folder that is kept brings them back."""
        if containers := self.docker("ps", "--all", "--quiet").split():
            self.docker("rm", "--force", "--volumes", *containers)
        if volumes := self.docker("volume", "ls", "--quiet").split():
            self.docker("volume", "rm", *volumes)

    def has_image(self, name: str) -> bool:
        return bool(self.docker("images", "-q", name).strip())

    def image_bytes(self, name: str) -> int:
        return int(self.docker("image", "inspect", "--format", "{{.Size}}", name))

    def provide(self, name: str) -> None:
        """The base, ZooKeeper or Prometheus: from a registry, else made here, the latter two on top of the base."""
        if self.has_image(name):
            return
        try:
            self.docker("pull", "--quiet", name, timeout_s=300)
        except (Failed, subprocess.TimeoutExpired):
            try:
                if name == BASE_IMAGE:
                    self._import_base()
                else:
                    self._build(name, _FILES[name])
            except (Failed, subprocess.SubprocessError, OSError) as error:
                said = network_failure(str(error)) or str(error).strip().splitlines()[-1]
                raise NotHere(f"{name} can neither be pulled nor made: {said}") from error

    def _import_base(self) -> None:
        folder = self.state / "base"
        shutil.rmtree(folder, ignore_errors=True)
        packages = "python3,python3-venv,ca-certificates"
        run(
            *("debootstrap", "--variant=minbase", f"--include={packages}", SUITE, folder, _debian_mirror()),
            timeout_s=BUILD_TIMEOUT_S,
        )
        certificates = Path("/etc/ssl/certs/ca-certificates.crt")
        if certificates.exists():  # what this machine trusts, its containers have to
            shutil.copyfile(certificates, folder / certificates.relative_to("/"))
        for rest in ("var/cache/apt", "var/lib/apt/lists"):
            shutil.rmtree(folder / rest)
            (folder / rest / "partial").mkdir(parents=True)
        with subprocess.Popen(["tar", "-C", str(folder), "-c", "."], stdout=subprocess.PIPE) as tar:
            subprocess.run(
                ["docker", "import", "-", BASE_IMAGE], stdin=tar.stdout, env=self.environment, check=True, timeout=600
            )
        shutil.rmtree(folder)

    def _build(self, name: str, file: str) -> None:
        here = Path(__file__).parent
        self.docker(
            *("build", "--quiet", "--build-arg", f"BASE_IMAGE={BASE_IMAGE}", "--tag", name),
            *("--file", str(here / file), str(here)),
            timeout_s=BUILD_TIMEOUT_S,
        )

    def _last_line(self) -> str:
        lines = (self.state / "engine.log").read_text(errors="replace").splitlines()
        return lines[-1] if lines else "it said nothing"


@contextmanager
def running_engine() -> Iterator[Engine]:
    if not os.environ.get("STRANDLINE_DOCKER_BESIDE"):
        refuse_beside_others()
    kept = os.environ.get("STRANDLINE_DOCKER_STATE")
    state = Path(kept) if kept else Path(tempfile.mkdtemp(prefix="strandline-docker-"))
    engine = Engine(state)
    try:
        engine.start()
        if kept:
            engine.remove_containers()
        yield engine
    finally:
        engine.stop()
        if not kept:
            shutil.rmtree(state, ignore_errors=True)


def refuse_beside_others(proc: Path = _PROC) -> None:
    """NotHere: another engine has the network of this machine. LeftOver: it is one of ours whose run is over."""
    for process in sorted((each for each in proc.iterdir() if each.name.isdecimal()), key=lambda each: int(each.name)):
        try:
            if (process / "comm").read_text().strip() != "dockerd" or not _shares_network(process, proc):
                continue
            words = (process / "cmdline").read_text(errors="replace")
            parent = _parent(process, proc)
        except OSError:
            continue  # it ended meanwhile
        if _SOCKET_FOLDER not in words:
            raise NotHere(
                f"another Docker engine runs here (pid {process.name}), and one more would take the rules of its "
                "published ports away; stop it, or set STRANDLINE_DOCKER_BESIDE=1 if that does not matter"
            )
        if "pytest" in parent:
            raise NotHere(f"another run of these tests has its engine here (pid {process.name})")
        raise LeftOver(f"the engine of an earlier run is still there: end it by kill {process.name}")


def _parent(process: Path, proc: Path) -> str:
    """The command line of who started it; empty when that has ended."""
    started_by = re.search(r"^PPid:\s*(\d+)", (process / "status").read_text(), re.MULTILINE)
    try:
        return (proc / started_by[1] / "cmdline").read_text(errors="replace") if started_by else ""
    except OSError:
        return ""


def _shares_network(process: Path, proc: Path) -> bool:
    try:
        return (process / "ns/net").readlink() == (proc / "self/ns/net").readlink()
    except OSError:
        return True


def without_what_steers_docker(variables: Mapping[str, str]) -> dict[str, str]:
    """The caller's variables without those that docker, docker-compose or the compose files act on."""
    used = {name for file in (ROOT / "deploy").glob("*.yml") for name in re.findall(r"\$\{(\w+)", file.read_text())}
    steering = ("COMPOSE_", "DOCKER_")
    return {
        name: value
        for name, value in variables.items()
        if name not in used and (name == "DOCKER_CONFIG" or not name.startswith(steering))
    }


_NETWORK = re.compile(
    "Temporary failure (in name resolution|resolving)|Could not resolve|Failed to (fetch|establish a new connection)"
    "|(Could not|Unable to) connect|connection broken by|Connection(Error| refused| reset| timed out)"
    "|ReadTimeout|[Rr]ead timed out|Network is unreachable|No route to host|HTTP error 5"
)


def network_failure(printed: str) -> str | None:
    """The last line by which the step of a build that failed says that it did not reach a server."""
    last_step = re.split(r"^Step \d+/\d+ :", printed, flags=re.MULTILINE)[-1]
    said = [line.strip() for line in last_step.splitlines() if _NETWORK.search(line)]
    return said[-1] if said else None


def at_once(*jobs: Callable[[], None]) -> None:
    """Each in a thread of its own. The first error is raised without waiting for the others, which end with the engine:
    so does an end by a signal."""
    threads = ThreadPoolExecutor(len(jobs))
    try:
        for ended in as_completed([threads.submit(job) for job in jobs]):
            ended.result()
    finally:
        threads.shutdown(wait=False)


def build(compose: Callable[..., object], *services: str) -> None:
    """Images of a compose file. NotHere: a server was not reached, twice; whatever else fails is ours to mend."""
    for last in (False, True):
        try:
            compose("build", *services, timeout_s=BUILD_TIMEOUT_S)
        except Failed as error:
            said = network_failure(str(error))
            if said is None:
                raise
            if last:
                raise NotHere(f"no image can be built, a server is not reached: {said}") from error
        else:
            return


def _debian_mirror() -> str:
    """Where this machine gets Debian's packages from."""
    for line in run("apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)").splitlines():
        mirror, _, release = line.partition(" ")
        if release.startswith(SUITE) and "security" not in mirror:
            return mirror
    raise Failed(f"apt knows no mirror of Debian {SUITE}, from which a base image could be made")


class Compose:
    """docker-compose with one file of deploy/, as a project of its own."""

    def __init__(self, engine: Engine, file: str, project: str, variables: Mapping[str, str]) -> None:
        self.engine = engine
        self.file = ROOT / "deploy" / file
        self.project = project
        self._environment = {**engine.environment, **variables}

    def __call__(self, *words: str, timeout_s: float = 180, stdin: str = "") -> str:
        return run(
            *("docker-compose", "-f", str(self.file), "-p", self.project, *words),
            timeout_s=timeout_s,
            env=self._environment,
            stdin=stdin,
        )

    def shell(self, command: str) -> str:
        """A command line of the README, in this project and with the `strandline` of this environment."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**self._environment, "COMPOSE_PROJECT_NAME": self.project, "PATH": path}
        return run("sh", "-ec", f"cd {ROOT}; {command}", timeout_s=900, env=environment)

    def container(self, service: str) -> str:
        """Its id, running or not."""
        found = self("ps", "-q", service).strip()
        assert found, f"there is no container of {service}"
        return found

    def state(self, service: str) -> dict[str, object]:
        """`State` of docker inspect: Status, ExitCode, Health …"""
        found: dict[str, object] = json.loads(
            self.engine.docker("inspect", "--format", "{{json .State}}", self.container(service))
        )
        return found

    def restart_policy(self, service: str) -> str:
        return self.engine.docker(
            "inspect", "--format", "{{.HostConfig.RestartPolicy.Name}}", self.container(service)
        ).strip()

    def health(self, service: str) -> str:
        health = self.state(service).get("Health")
        return str(health["Status"]) if isinstance(health, dict) else "none"

    def wait_healthy(self, *services: str, timeout_s: float = 120) -> None:
        deadline = time.monotonic() + timeout_s
        while any(self.health(service) != "healthy" for service in services):
            if time.monotonic() > deadline:
                raise Failed(f"not healthy within {timeout_s} s:\n{self('ps')}\n{self('logs', '--no-color')}")
            time.sleep(_POLL_S)
