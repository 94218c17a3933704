"""The command `demo`."""

from __future__ import annotations

import asyncio
import io
import os

import click

from acs_aaep_bridge.cli.demo.broker import EMBEDDED_SETTINGS, embedded_broker, free_port
from acs_aaep_bridge.cli.demo.play import Course, play
from acs_aaep_bridge.cli.demo.screen import screen
from acs_aaep_bridge.config import Config, Http, load
from acs_aaep_bridge.errors import BrokerUnreachable


@click.command()
@click.option("--seconds", type=click.IntRange(min=1), default=30, show_default=True, help="End after so long.")
@click.option("--rate", type=click.FloatRange(min=0.1, max=500), default=3.0, show_default=True, help="Records a second.")
@click.option("--plain", is_flag=True, help="One line after the other, also on a terminal; kinder to a screen reader.")
def demo(seconds: int, rate: float, plain: bool) -> int:
    """See it work: a Kafka-like broker, the bridge and sample traffic, in this terminal.

    Made-up agent hosts send hooks: turns with tools, parallel subagents that finish, fail, are cancelled, denied or run out
    of time, a batch, and records that must be rejected. You see what goes in, what comes out, and what a person would hear.
    At the end the bridge's own metrics must account for everything that went in. Nothing is left behind. Ctrl-C ends early.

    Exit code: 0, or 1 if the account does not add up.
    """
    log = io.StringIO()
    with embedded_broker() as broker, screen(plain) as shown:
        account = asyncio.run(play(_config(broker.bootstrap), shown, Course(seconds, rate), log))
    for line in account.lines():
        click.echo(line)
    for line in log.getvalue().splitlines():
        click.echo(f"log: {line}", err=True)
    return 0 if account.settled() else 1


def _config(bootstrap: str) -> Config:
    """Small topics, and one that a machine without anything else can run. `BRIDGE_…` variables apply here too."""
    overrides = {
        "kafka.bootstrap_servers": bootstrap,
        "topics.create.partitions": "3",
        "topics.create.replication_factor": "1",
        "sessions.grace": "1s",
        # This broker lets a first member wait for half of its session timeout before it gets partitions.
        "kafka.session_timeout": "4s",
        "kafka.heartbeat_interval": "1s",
        "http.host": "127.0.0.1",
        "http.port": str(_metrics_port()),
    }
    return load("log: {level: error}", os.environ, {**EMBEDDED_SETTINGS, **overrides})


def _metrics_port() -> int:
    """The usual port, or any other where that one is taken."""
    usual: int = Http().port
    try:
        return free_port(usual)
    except BrokerUnreachable:
        return 0
