"""Create and check topics. Nothing here is created by accident, and nothing starts on topics that would lose events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import aiokafka.codec
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    KafkaError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    for_code,
)

from acs_aaep_bridge.config import Config
from acs_aaep_bridge.core.model import StageName
from acs_aaep_bridge.errors import AuthorizationError, BrokerUnreachable, CodecMissing, TopicError
from acs_aaep_bridge.kafka.client import Clients, reach

DEFAULT_LIMIT = 1_048_588  # max.message.bytes of a broker that was not told otherwise
RECORD_OVERHEAD = 64 << 10  # key, headers and batch header beside a record's value
EVENT_LIMIT = 64 << 10  # AAEP's limit for one event
ENTRY_LIMIT = 128 << 10  # a session in the changelog

_ASK_WITHIN = 12.0  # seconds; longer than the 9 for which brokers hold on to a dead one

T = TypeVar("T")
Role = Literal["input", "normalized", "lifecycle", "dead_letter", "changelog"]


class TopicInfo(NamedTuple):
    """A topic as it is. `cleanup` and `limit` (max.message.bytes) are None where the broker would not say."""

    partitions: int
    cleanup: str | None = None
    limit: int | None = None


class Report(NamedTuple):
    """What a check found: topics by name, and what deserves a warning but no refusal."""

    topics: Mapping[str, TopicInfo]
    warnings: Sequence[str]

    def limit(self, topic: str) -> int:
        """The largest batch the topic takes, in bytes."""
        info = self.topics.get(topic)
        return info.limit if info and info.limit else DEFAULT_LIMIT


def roles(config: Config, stages: Collection[StageName], existing: Collection[str]) -> dict[str, Role]:
    """The topics that `stages` use. Input topics of a pattern are those that exist."""
    found: dict[str, Role] = {}
    if "normalize" in stages:
        names = config.input.topics or [name for name in sorted(existing) if is_input(config, name)]
        found |= dict.fromkeys(names, "input")
    found[config.topics.normalized] = "normalized"
    if "lifecycle" in stages:
        found[config.topics.lifecycle] = "lifecycle"
        found[config.topics.changelog] = "changelog"
    found[config.topics.dead_letter] = "dead_letter"
    return found


def is_input(config: Config, topic: str) -> bool:
    """Whether `topic` is consumed; Kafka's own topics never are."""
    return not topic.startswith("__") and config.input.includes(topic)


def settings(config: Config, role: Role) -> dict[str, str]:
    """The topic settings that `create` asks for."""
    new = config.topics.create
    found: dict[str, str] = {"cleanup.policy": "delete"}
    retention = new.dead_letter_retention if role == "dead_letter" else new.retention
    if role == "changelog":
        # Small segments and an eager cleaner keep a restore short: the active segment is never compacted.
        found = {"cleanup.policy": "compact", "segment.bytes": str(64 << 20), "min.cleanable.dirty.ratio": "0.2"}
    elif retention is not None:
        found["retention.ms"] = str(retention)
    if new.min_insync_replicas is not None:
        found["min.insync.replicas"] = str(new.min_insync_replicas)
    found["max.message.bytes"] = str(_wanted_limit(config, role))
    return found


def _wanted_limit(config: Config, role: Role) -> int:
    source = max(DEFAULT_LIMIT, config.limits.max_record_bytes + RECORD_OVERHEAD)
    return source + RECORD_OVERHEAD if role == "dead_letter" else source


def problems(config: Config, stages: Collection[StageName], found: Mapping[str, TopicInfo]) -> tuple[list[str], list[str]]:
    """What makes a start impossible, and what deserves a warning. Pure."""
    wrong: list[str] = []
    odd: list[str] = []
    wanted = roles(config, stages, found)
    missing = [name for name in wanted if name not in found]
    if missing:
        wrong.append(f"missing: {', '.join(missing)} (`acs-aaep-bridge topics create` makes them)")
    for name, role in wanted.items():
        if name in found:
            _check_one(name, role, found[name], wrong, odd)
    _check_sizes(config, wanted, found, odd)
    normalized, changelog = found.get(config.topics.normalized), found.get(config.topics.changelog)
    if "lifecycle" in stages and normalized and changelog and normalized.partitions != changelog.partitions:
        wrong.append(
            f"{config.topics.changelog} has {changelog.partitions} partitions and {config.topics.normalized} "
            f"{normalized.partitions}: the changelog must have as many as its input, partition for partition"
        )
    if "normalize" in stages and not any(role == "input" for role in wanted.values()):
        odd.append(f"no topic matches input.pattern {config.input.pattern!r} yet")
    return wrong, odd


def _check_one(name: str, role: Role, info: TopicInfo, wrong: list[str], odd: list[str]) -> None:
    policy = set((info.cleanup or "").replace(" ", "").split(",")) - {""}
    if role == "changelog":
        if policy and policy != {"compact"}:
            wrong.append(f"{name} has cleanup.policy={info.cleanup}: sessions would be lost; it must be compact")
        if info.limit is not None and info.limit < ENTRY_LIMIT + RECORD_OVERHEAD:
            wrong.append(f"{name} has max.message.bytes={info.limit}: it must be {ENTRY_LIMIT + RECORD_OVERHEAD} or more")
        return
    if "compact" in policy:
        said = f"{name} has cleanup.policy={info.cleanup}: compaction would delete all events of a key but the last"
        (odd if role == "input" else wrong).append(said)
    if role == "lifecycle" and info.limit is not None and info.limit < EVENT_LIMIT + RECORD_OVERHEAD:
        wrong.append(f"{name} has max.message.bytes={info.limit}: it must be {EVENT_LIMIT + RECORD_OVERHEAD} or more")


def _check_sizes(config: Config, wanted: Mapping[str, Role], found: Mapping[str, TopicInfo], odd: list[str]) -> None:
    largest = max((found[name].limit or 0 for name, role in wanted.items() if role == "input" and name in found), default=0)
    dead = found.get(config.topics.dead_letter)
    if dead and dead.limit and dead.limit < largest:
        odd.append(
            f"{config.topics.dead_letter} takes {dead.limit} bytes and the input {largest}: "
            "rejected records larger than that are replaced by a reference"
        )


async def check(config: Config, stages: Collection[StageName], clients: Clients) -> Report:
    """Look at every topic the stages use. Raises BrokerUnreachable, AuthorizationError, TopicError or CodecMissing."""
    check_codecs(config)
    await reach(clients, config.kafka)
    try:
        async with asyncio.timeout(config.kafka.request_timeout / 1000):
            found = await _ask(clients, lambda admin: describe(admin, lambda names: roles(config, stages, names)))
    except TimeoutError:
        seconds = config.kafka.request_timeout // 1000
        raise BrokerUnreachable(f"the broker accepts connections and has not answered for {seconds} s") from None
    wrong, odd = problems(config, stages, found)
    if wrong:
        raise TopicError("topics do not fit: " + "; ".join(wrong))
    return Report(found, odd)


def check_codecs(config: Config) -> None:
    """Raises CodecMissing. aiokafka meets a missing codec when it reads the first such batch, and then for ever."""
    have = {name: getattr(aiokafka.codec, f"has_{name}")() for name in ("gzip", "snappy", "lz4", "zstd")}
    missing = sorted(name for name, present in have.items() if not present)
    if missing:
        raise CodecMissing(f"compression libraries are missing: {', '.join(missing)}; reinstall aiokafka[snappy,lz4,zstd]")
    if config.kafka.compression not in {*have, "none"}:
        raise CodecMissing(f"kafka.compression {config.kafka.compression} is not known")


async def create(config: Config, stages: Collection[StageName], clients: Clients) -> list[str]:
    """Make the topics that are missing, and say which. Raises as `check` does; existing topics are left alone."""
    await reach(clients, config.kafka)
    found = await _ask(clients, lambda admin: describe(admin, lambda names: roles(config, stages, names)))
    new = plan(config, stages, found)
    if not new:
        return []
    await _ask(clients, lambda admin: _create(admin, new))
    return [topic.name for topic in new]


def plan(config: Config, stages: Collection[StageName], found: Mapping[str, TopicInfo]) -> list[NewTopic]:
    """The missing topics as they would be made. The changelog gets as many partitions as the normalized topic has."""
    new = config.topics.create
    normalized = found.get(config.topics.normalized)
    planned = []
    for name, role in roles(config, stages, found).items():
        if name in found:
            continue
        partitions = normalized.partitions if role == "changelog" and normalized else new.partitions
        topic = NewTopic(name, partitions, 1, topic_configs=settings(config, role))
        topic.replication_factor = new.replication_factor  # -1, the broker's default, is refused by the constructor only
        planned.append(topic)
    return planned


async def _create(admin: AIOKafkaAdminClient, new: Sequence[NewTopic]) -> None:
    response: Any = await admin.create_topics(list(new))
    failed: list[str] = []
    for name, code, *message in response.topic_errors:
        error = for_code(code)
        if error in {TopicAuthorizationFailedError, ClusterAuthorizationFailedError}:
            raise AuthorizationError(f"not allowed to create {name}: it needs the Create operation on it or on the cluster")
        if code and error is not TopicAlreadyExistsError:
            failed.append(f"{name}: {error.__name__}{f' ({message[0]})' if message and message[0] else ''}")
    if failed:
        raise TopicError("topics could not be created: " + "; ".join(failed))
    await _until_visible(admin, {topic.name for topic in new})


async def _until_visible(admin: AIOKafkaAdminClient, names: set[str]) -> None:
    """Until every broker's metadata may be asked for them: creation is answered before it has spread."""
    for _ in range(100):
        described = await admin.describe_topics(sorted(names))
        ready = {one["topic"] for one in described if not one["error_code"] and all(p["leader"] >= 0 for p in one["partitions"])}
        if ready >= names:
            return
        await asyncio.sleep(0.1)
    raise TopicError(f"created, but not to be seen after 10 s: {', '.join(sorted(names - ready))}")


async def describe(admin: AIOKafkaAdminClient, wanted: Callable[[Collection[str]], Collection[str]]) -> dict[str, TopicInfo]:
    """Those topics that exist of those that `wanted` names, given all existing names."""
    existing = set(await admin.list_topics())
    names = sorted(set(wanted(existing)) & existing)
    if not names:
        return {}
    partitions: dict[str, int] = {}
    for one in await admin.describe_topics(names):
        if one["error_code"]:
            raise _refusal(one["error_code"], one["topic"])
        partitions[one["topic"]] = len(one["partitions"])
    configs = await _configs(admin, names)
    return {name: TopicInfo(count, *configs.get(name, (None, None))) for name, count in partitions.items()}


def _refusal(code: int, topic: str) -> AuthorizationError | TopicError:
    error = for_code(code)
    if error is TopicAuthorizationFailedError:
        return AuthorizationError(f"not allowed to look at the topic {topic}: it needs the Describe operation")
    return TopicError(f"the topic {topic} cannot be described: {error.__name__}")


async def _configs(admin: AIOKafkaAdminClient, names: Sequence[str]) -> dict[str, tuple[str | None, int | None]]:
    """cleanup.policy and max.message.bytes by topic; those that may not be read, or that the broker has not, are missing."""
    keys = {"cleanup.policy": None, "max.message.bytes": None}
    resources = [ConfigResource(ConfigResourceType.TOPIC, name, dict(keys)) for name in names]
    try:
        responses: list[Any] = await admin.describe_configs(resources)
    except KafkaError:
        return {}
    found: dict[str, tuple[str | None, int | None]] = {}
    for response in responses:
        for code, _message, _kind, name, entries in response.resources:
            values = {entry[0]: entry[1] for entry in entries}
            limit = values.get("max.message.bytes")
            if not code:
                found[name] = (values.get("cleanup.policy"), int(limit) if limit else None)
    return found


async def _ask(clients: Clients, question: Callable[[AIOKafkaAdminClient], Awaitable[T]]) -> T:
    """The answer to `question` from an admin client that is closed afterwards. aiokafka's errors are told as ours.

    Asked again for some seconds while one does not come: the client may ask a broker that has just died, which the others
    still name until its session ends.
    """
    deadline = time.monotonic() + _ASK_WITHIN
    while True:
        admin = clients.admin()
        try:
            await admin.start()
            return await question(admin)
        except (KafkaError, TimeoutError) as error:
            if time.monotonic() > deadline or not getattr(error, "retriable", True):
                raise BrokerUnreachable(f"the broker does not answer: {error or type(error).__name__}") from None
        finally:
            await admin.close()
        await asyncio.sleep(0.5)
