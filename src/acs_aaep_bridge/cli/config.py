"""`config check | show | schema`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel
from ruamel.yaml import YAML

from acs_aaep_bridge.cli.options import with_config
from acs_aaep_bridge.config import Config, Secret, Signature
from acs_aaep_bridge.errors import ConfigError, Problem
from acs_aaep_bridge.kafka.secrets import read_secret


@click.group()
def config() -> None:
    """Check or show the configuration, or print its schema.

    Every option, its default and its reason stand in config/bridge.yaml.
    """


@config.command()
@click.option("--files", is_flag=True, help="Also see whether the certificates and secrets it names can be read here.")
@with_config
def check(settings: Config, files: bool) -> None:
    """Check the configuration; every problem is reported, one a line. Exit code 2 if there is any."""
    if files:
        problems = list(_unreadable(settings, ()))
        if problems:
            raise ConfigError(problems)
    click.echo("The configuration is fine.")


@config.command()
@with_config
def show(settings: Config) -> None:
    """Print the effective configuration as YAML: file, environment and --set applied.

    Of a secret only the reference (its file or variable) is known, so nothing needs to be masked.
    """
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.dump(settings.model_dump(mode="json"), sys.stdout)


@config.command()
def schema() -> None:
    """Print the JSON Schema of the configuration file, for editors and for checks before a deployment."""
    click.echo(json.dumps(json_schema(), indent=2))


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the configuration, its defaults written as they are written in the file (`20s`, `1MiB`)."""
    tree = Config.model_json_schema()
    _set_defaults(tree["properties"], Config().model_dump(mode="json"), tree["$defs"])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **tree, "title": "acs-aaep-bridge configuration"}


def _set_defaults(properties: dict[str, Any], values: dict[str, Any], definitions: dict[str, Any]) -> None:
    for name, value in values.items():
        properties[name]["default"] = value
        section = properties[name].get("$ref", "").removeprefix("#/$defs/")
        if section:
            _set_defaults(definitions[section]["properties"], value, definitions)


def _unreadable(section: BaseModel, path: tuple[str, ...]) -> Iterator[Problem]:
    """Every file and secret the configuration names that cannot be had."""
    for name in type(section).model_fields:
        value, here = getattr(section, name), (*path, name)
        named = value.items() if isinstance(value, dict) else [(None, value)]
        for key, item in named:
            dotted = ".".join((*here, key) if key else here)
            if isinstance(item, Secret):
                read = read_secret if isinstance(section, Signature) else Secret.read
                yield from _secret_problem(item, read, dotted)
            elif isinstance(item, BaseModel):
                yield from _unreadable(item, here)
            elif isinstance(item, Path) and not item.is_file():
                yield Problem(dotted, f"there is no file {item}")


def _secret_problem(secret: Secret, read: Callable[[Secret], str | bytes], dotted: str) -> Iterator[Problem]:
    try:
        read(secret)
    except ConfigError as error:
        yield from (Problem(dotted, problem.message) for problem in error.problems)
