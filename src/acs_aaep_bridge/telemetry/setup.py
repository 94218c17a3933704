"""Logs, metrics and HTTP of a running bridge, put together from its configuration."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple, TextIO

from acs_aaep_bridge.config import Config
from acs_aaep_bridge.core.model import StageName
from acs_aaep_bridge.telemetry.http import serving
from acs_aaep_bridge.telemetry.logs import configure
from acs_aaep_bridge.telemetry.observer import Clocks, TelemetryObserver
from acs_aaep_bridge.telemetry.readiness import Readiness
from acs_aaep_bridge.telemetry.registry import Metrics


class Telemetry(NamedTuple):
    """What a run reports to, and the port on which it can be seen."""

    observer: TelemetryObserver
    metrics: Metrics
    port: int


@asynccontextmanager
async def telemetry(config: Config, stages: Sequence[StageName], log_stream: TextIO | None = None) -> AsyncIterator[Telemetry]:
    """Set up logs for the process, open the port, and serve until the block ends.

    Raises ConfigError when the port cannot be opened.
    """
    log = configure(config.log, log_stream)
    metrics = Metrics(stages, *_topics(config))
    readiness = Readiness(stages, time.monotonic)
    observer = TelemetryObserver(metrics, readiness, log, Clocks(time.time, time.monotonic))
    async with serving(config.http, metrics.registry, readiness) as port:
        log.info("http.listening", host=config.http.host, port=port)
        try:
            yield Telemetry(observer, metrics, port)
        finally:
            observer.flush()


_ByStage = dict[str, tuple[str, ...]]


def _topics(config: Config) -> tuple[_ByStage, _ByStage]:
    """Input and output topics by stage, as far as the configuration names them."""
    topics = config.topics
    inputs: _ByStage = {"normalize": config.input.topics, "lifecycle": (topics.normalized,)}
    outputs: _ByStage = {
        "normalize": (topics.normalized, topics.dead_letter),
        "lifecycle": (topics.lifecycle, topics.dead_letter),
    }
    return inputs, outputs
