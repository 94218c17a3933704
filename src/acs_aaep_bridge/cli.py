"""The command line."""

import click

from acs_aaep_bridge import __version__


@click.group()
@click.version_option(__version__)
def main() -> None:
    """Bridge ACS agent events on Kafka to AAEP lifecycle events."""
