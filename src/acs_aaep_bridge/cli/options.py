"""The options that every command shares, and the configuration they give."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import click

from acs_aaep_bridge.cli.program import DEBUG
from acs_aaep_bridge.config import Config, load_file, read_duration
from acs_aaep_bridge.core.model import StageName
from acs_aaep_bridge.errors import ConfigError, Problem

P = ParamSpec("P")
T = TypeVar("T")


def with_config(command: Callable[Concatenate[Config, P], T]) -> Callable[..., T]:
    """Give a command `--config`, `--set`, `--log-level` and `--log-format`, and the checked configuration as first argument."""

    @click.option(
        "--config",
        "config_file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="The YAML configuration. Without it the defaults hold; BRIDGE_<SECTION>__<KEY> variables override both.",
    )
    @click.option(
        "--set",
        "overrides",
        multiple=True,
        metavar="SECTION.KEY=VALUE",
        help="Override one option, e.g. --set acs.final_chain_hash=optional. May be given several times.",
    )
    @click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="Short for --set log.level=…")
    @click.option("--log-format", type=click.Choice(["auto", "json", "console"]), help="Short for --set log.format=…")
    @click.pass_context
    @functools.wraps(command)
    def wrapped(
        ctx: click.Context,
        /,
        *args: Any,
        config_file: Path | None,
        overrides: tuple[str, ...],
        log_level: str | None,
        log_format: str | None,
        **kwargs: Any,
    ) -> T:
        ctx.meta[DEBUG] = log_level == "debug"
        chosen = _pairs(overrides)
        chosen |= {"log.level": log_level} if log_level else {}
        chosen |= {"log.format": log_format} if log_format else {}
        config = load_file(config_file, os.environ, chosen)
        ctx.meta[DEBUG] = config.log.level == "debug"
        return command(config, *args, **kwargs)

    return wrapped


def _pairs(overrides: tuple[str, ...]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in overrides:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ConfigError([Problem(f"--set {text}", "write SECTION.KEY=VALUE")])
        pairs[name] = value
    return pairs


STAGES: Final[tuple[StageName, ...]] = ("normalize", "lifecycle")

stage_option: Final = click.option("--stage", type=click.Choice(STAGES), help="Only this stage. Default: both.")


def chosen(stage: StageName | None) -> tuple[StageName, ...]:
    """The stages that `--stage` stands for."""
    return (stage,) if stage else STAGES


def _read_timestamp(text: str) -> int:
    """Milliseconds since the epoch, from RFC 3339 or a number of milliseconds. Raises ValueError with what to write."""
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError("write a timestamp with its zone, like 2026-05-24T15:22:38Z")
    return int(moment.timestamp() * 1000)


def _read_moment(text: str) -> int:
    try:
        return time.time_ns() // 1_000_000 - read_duration(text)
    except ValueError:
        pass
    try:
        return _read_timestamp(text)
    except ValueError as error:
        raise ValueError(f"{error}, or a duration, like 2h") from None


def _callback(read: Callable[[str], int]) -> Callable[[click.Context, click.Parameter, str | None], int | None]:
    """For an option that `read` reads; its ValueError says what to write."""

    def called(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
        try:
            return None if value is None else read(value)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from None

    return called


as_duration: Final = _callback(read_duration)
"""Of an option that takes a duration as in the configuration (`90s`, `1h`): milliseconds."""
as_timestamp: Final = _callback(_read_timestamp)
"""Of an option that takes a timestamp: milliseconds since the epoch."""
as_moment: Final = _callback(_read_moment)
"""Of an option that takes a timestamp, or a duration before now: milliseconds since the epoch."""
