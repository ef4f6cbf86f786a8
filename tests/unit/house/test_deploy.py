"""What the image and the compose files rest on, as far as it can be told without an engine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from strandline.runtime.config.properties import parse_properties
from strandline.runtime.config.reading import load_broker_config
from strandline.runtime.config.variables import properties_from_environment

REQUIRED = {"broker.id": "1", "zookeeper.connect": "zookeeper:2181"}


@pytest.fixture
def deploy(root: Path) -> Path:
    return root / "deploy"


def names_under(text: str, heading: str) -> set[str]:
    """The keys of one top-level mapping of a compose file."""
    block = re.search(rf"^{heading}:\n((?:(?: .*)?\n)+)", text, re.MULTILINE)
    assert block is not None
    return set(re.findall(r"^  ([\w-]+):", block[1], re.MULTILINE))


def test_the_image_sets_no_key_by_a_variable_which_would_win_over_kafkas_prefix(deploy: Path) -> None:
    lines = re.findall(r"^ENV (.*)$", (deploy / "Dockerfile").read_text(), re.MULTILINE)
    variables = dict(pair.split("=", 1) for line in lines for pair in line.split())
    assert "STRANDLINE_DEFAULTS" in variables
    assert properties_from_environment(variables) == {}


def test_the_images_defaults_are_a_configuration_without_doubts(deploy: Path) -> None:
    config = load_broker_config(parse_properties((deploy / "image.properties").read_text()) | REQUIRED)
    assert config.warnings == ()
    assert config.admin_listener is not None and config.admin_listener.port
    assert f"VOLUME {config.log_dirs[0]}\n" in (deploy / "Dockerfile").read_text()


@pytest.mark.parametrize("heading", ["services", "volumes"])
def test_the_compose_files_which_make_one_project_share_nothing(deploy: Path, heading: str) -> None:
    three, single = (
        names_under((deploy / name).read_text(), heading)
        for name in ("docker-compose.yml", "docker-compose.single.yml")
    )
    assert three and single and not three & single


def test_up_waits_for_every_broker(deploy: Path) -> None:
    for name in ("docker-compose.yml", "docker-compose.single.yml"):
        text = (deploy / name).read_text()
        brokers = {each for each in names_under(text, "services") if each.startswith("broker")}
        waiting = re.search(r"^  (?:single-)?ready:\n((?: {4}.*\n)+)", text, re.MULTILINE)
        assert waiting is not None
        waited_for = waiting[1].split("depends_on:", 1)[1]
        assert brokers == set(re.findall(r"^ +([\w-]+):\n +condition: service_healthy$", waited_for, re.MULTILINE))
