"""`run`: the bridge itself."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from importlib.util import find_spec
from typing import cast

import click

from acs_aaep_bridge.cli.options import chosen, stage_option, with_config
from acs_aaep_bridge.config import Config
from acs_aaep_bridge.core.model import StageName
from acs_aaep_bridge.kafka.runner import run as run_bridge
from acs_aaep_bridge.telemetry.setup import telemetry

_NEW_OBJECTS = 10_000
"""New containers between two looks for cycles: a few MB at most, against 700 by default."""


@click.command()
@stage_option
@with_config
def run(config: Config, stage: StageName | None) -> None:
    """Run the bridge until SIGTERM or Ctrl-C; then it finishes what is in flight, commits, and leaves the group.

    \b
    normalize   raw hooks in, validated and normalized events out
    lifecycle   normalized events in, AAEP events out

    Both run in one process unless --stage names one, to scale or replay it alone. /metrics, /livez and /readyz are served on
    http.port (9404).
    """
    spare_the_collector()
    with asyncio.Runner(loop_factory=loop_factory()) as running:
        running.run(_run(config, chosen(stage)))


def spare_the_collector() -> None:
    """Records hold no cycles: look for them less often, and never among what lives as long as the process."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where the extra is installed; None takes the standard library's."""
    if find_spec("uvloop") is None:
        return None
    from uvloop import new_event_loop  # noqa: PLC0415 - an optional extra

    return cast("Callable[[], asyncio.AbstractEventLoop]", new_event_loop)


async def _run(config: Config, stages: tuple[StageName, ...]) -> None:
    async with telemetry(config, stages) as seen:
        await run_bridge(config, stages, seen.observer)
