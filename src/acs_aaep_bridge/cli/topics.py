"""`topics create | check`."""

from __future__ import annotations

import asyncio

import click

from acs_aaep_bridge.cli.options import chosen, stage_option, with_config
from acs_aaep_bridge.config import Config
from acs_aaep_bridge.core.model import StageName
from acs_aaep_bridge.kafka import topics as kafka_topics
from acs_aaep_bridge.kafka.client import Clients
from acs_aaep_bridge.telemetry.logs import configure


@click.group()
def topics() -> None:
    """Create or check the bridge's topics.

    The bridge itself never creates a topic: what is missing is an error when it starts.
    """


@topics.command()
@stage_option
@with_config
def create(config: Config, stage: StageName | None) -> None:
    """Create the topics that are missing, as `topics.create` in the configuration says. Existing ones are left alone."""
    configure(config.log)
    made = asyncio.run(_create(config, chosen(stage)))
    for name in made:
        click.echo(f"created {name}")
    if not made:
        click.echo("All topics exist already.")


@topics.command()
@stage_option
@with_config
def check(config: Config, stage: StageName | None) -> None:
    """Check that all topics exist and fit, as the bridge does when it starts. Exit code 3 if not."""
    configure(config.log)
    report = asyncio.run(_check(config, chosen(stage)))
    for name, info in report.topics.items():
        click.echo(f"{name}: {info.partitions} partitions, cleanup.policy {info.cleanup or 'unknown'}")
    for warning in report.warnings:
        click.echo(f"warning: {warning}", err=True)


async def _create(config: Config, stages: tuple[StageName, ...]) -> list[str]:
    return await kafka_topics.create(config, stages, Clients(config))


async def _check(config: Config, stages: tuple[StageName, ...]) -> kafka_topics.Report:
    return await kafka_topics.check(config, stages, Clients(config))
