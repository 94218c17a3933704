"""What the configured formats and signatures need around a run: a schema registry, our schema's id, secrets that rotate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

from acs_aaep_bridge.config import Config
from acs_aaep_bridge.core.encode_avro import normalized_schema
from acs_aaep_bridge.core.model import Stage, StageName
from acs_aaep_bridge.core.stages import NormalizeStage, build_stage
from acs_aaep_bridge.kafka.observer import Observer
from acs_aaep_bridge.kafka.registry import Registry, subject_of
from acs_aaep_bridge.kafka.secrets import follow, read_secrets


class Around(NamedTuple):
    """`registry` is where writers' schemas come from, if there is one; `build` makes a stage.

    `watch` follows the secrets; when it ends by itself, rotated ones would go unnoticed: a bug.
    """

    registry: Registry | None
    build: Callable[[StageName, Config], Stage]
    watch: asyncio.Task[None] | None


@asynccontextmanager
async def around(config: Config, stages: Sequence[StageName], observer: Observer) -> AsyncIterator[Around]:
    """Open while the stages run.

    Raises ConfigError for secrets and certificates that cannot be read, RegistryError and AuthorizationError.
    """
    secrets = await asyncio.to_thread(read_secrets, config.signature)
    async with AsyncExitStack() as stack:
        registry: Registry | None = None
        avro_id: int | None = None
        if config.schema_registry.url is not None:
            registry = await stack.enter_async_context(Registry(config.schema_registry, observer))
            if config.normalized.format == "avro" and "normalize" in stages:
                avro_id = await registry.register(subject_of(config.topics.normalized), normalized_schema())
        signed: list[NormalizeStage] = []

        def build(name: StageName, config: Config) -> Stage:
            stage = build_stage(name, config, secrets=secrets, avro_id=avro_id)
            if isinstance(stage, NormalizeStage):
                signed.append(stage)
            return stage

        def use(found: Mapping[str, bytes]) -> None:
            for stage in signed:
                stage.use_secrets(found)

        watch: asyncio.Task[None] | None = None
        if secrets:
            watch = asyncio.create_task(follow(config.signature, secrets, use, observer))
            stack.push_async_callback(_end, watch)
        yield Around(registry, build, watch)


async def _end(task: asyncio.Task[None]) -> None:
    """Cancel it. What it failed with has been raised by whoever waited for it."""
    task.cancel()
    await asyncio.wait([task])
