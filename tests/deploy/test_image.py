"""The image and the compose file, as far as they can be tried without a container engine."""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML
from tests.tools import ROOT, program, run

from acs_aaep_bridge.cli.program import main
from acs_aaep_bridge.config import load

DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = YAML(typ="safe", pure=True).load(ROOT / "compose.yaml")
OURS = {name: service for name, service in COMPOSE["services"].items() if service["image"].startswith("acs-aaep-bridge")}


def copied() -> list[str]:
    """What the build takes from the repository."""
    lines = re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
    return [source for line in lines for source in line.split()[:-1]]


def test_hadolint_finds_nothing() -> None:
    done = run(Path(sys.executable).with_name("hadolint"), "Dockerfile")
    assert done.returncode == 0, done.stdout


def test_the_final_stage_runs_as_a_numeric_user_and_starts_the_program_itself() -> None:
    final = DOCKERFILE[DOCKERFILE.rindex("\nFROM ") :]
    assert re.search(r"^USER [1-9]\d*:[1-9]\d*$", final, re.MULTILINE)
    assert 'ENTRYPOINT ["acs-aaep-bridge"]' in final
    assert {"title", "description", "licenses", "version", "revision"} <= set(re.findall(r"opencontainers\.image\.(\w+)=", final))


def test_the_versions_named_are_the_packages() -> None:
    version = re.search(r'__version__ = "(.+)"', (ROOT / "src/acs_aaep_bridge/__init__.py").read_text(encoding="utf-8"))
    assert version is not None
    assert f"ARG VERSION={version[1]}\n" in DOCKERFILE
    assert {service["image"] for service in OURS.values()} == {f"acs-aaep-bridge:{version[1]}"}


def test_what_is_copied_is_sent_to_the_build_and_exists() -> None:
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line.startswith("!")}
    assert set(copied()) == let_through
    assert all((ROOT / source).exists() for source in copied())


def test_what_is_copied_is_enough_to_build_the_wheel(tmp_path: Path) -> None:
    for source in copied():
        target = tmp_path / "build" / source
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / source, target)
    build = ("-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", "--wheel-dir", str(tmp_path), ".")
    done = run(sys.executable, *build, cwd=tmp_path / "build", timeout=100)
    assert done.returncode == 0, done.stderr
    [wheel] = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    shipped = {f"acs_aaep_bridge/{file.relative_to(ROOT)}" for file in (ROOT / "schemas").rglob("*") if file.is_file()}
    assert shipped <= set(names)
    assert any(name.endswith("entry_points.txt") for name in names)


def test_the_lock_of_the_image_holds_everything_the_package_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [re.split(r"[^A-Za-z0-9._-]", dependency)[0] for dependency in project["dependencies"]]
    locked = re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements/runtime.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert {re.sub(r"[._]", "-", name.lower()) for name in wanted} <= set(locked)


def test_the_compose_file_follows_its_specification() -> None:
    checker = Path(sys.executable).with_name("check-jsonschema")
    done = run(checker, "--builtin-schema", "vendor.compose-spec", "compose.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_image_in_it_has_a_tag() -> None:
    assert all(re.search(r":v?\d+\.\d+\.\d+$", service["image"]) for service in COMPOSE["services"].values())


@pytest.mark.parametrize("name", OURS)
def test_its_commands_exist(name: str) -> None:
    command = [str(word) for word in OURS[name]["command"]]
    words = command[: next((at for at, word in enumerate(command) if word.startswith("-")), len(command))]
    shown = CliRunner().invoke(main, [*words, "--help"])
    assert shown.exit_code == 0, shown.output
    assert {word for word in command if word.startswith("--")} <= set(re.findall(r"--[a-z-]+", shown.output))


@pytest.mark.parametrize("name", OURS)
def test_its_environment_is_a_configuration(name: str) -> None:
    config = load("", OURS[name]["environment"])
    assert config.kafka.bootstrap_servers == ("kafka:19092",)
    assert "INSIDE://kafka:19092" in COMPOSE["services"]["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]


def test_what_it_mounts_exists() -> None:
    mounts = [mount.split(":")[0] for service in COMPOSE["services"].values() for mount in service.get("volumes", [])]
    assert mounts
    assert all((ROOT / mount).exists() for mount in mounts)


def test_its_prometheus_scrapes_the_bridge_by_the_name_that_the_alerts_know() -> None:
    done = run(program("promtool", "prometheus"), "check", "config", "config/prometheus/prometheus.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    [job] = YAML(typ="safe", pure=True).load(ROOT / "config/prometheus/prometheus.yaml")["scrape_configs"]
    assert f'job="{job["job_name"]}"' in (ROOT / "config/prometheus/rules.yaml").read_text(encoding="utf-8")
    [target] = job["static_configs"][0]["targets"]
    assert target == f"bridge:{load('', {}).http.port}"
