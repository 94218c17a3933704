"""The configuration: small frozen sections, checked whole before anything starts.

`load(text, env)` gives a `Config` or raises `ConfigError` with every problem at once. Durations are int milliseconds,
sizes int bytes; in the file they are written `20s`, `24h`, `1MiB`. What each option is for, and why its default is
what it is, stands in `config/bridge.yaml`.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    WithJsonSchema,
    model_serializer,
    model_validator,
)
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.reader import ReaderError

from acs_aaep_bridge.errors import ConfigError, Problem
from acs_aaep_bridge.wording import HTTP_URL, LANGUAGE_TAG, TOPIC, URI, words

ENV_PREFIX = "BRIDGE_"
_DURATION = re.compile(r"(\d+)(ms|s|m|h|d)")
_SIZE = re.compile(r"(\d+)(B|KiB|MiB|GiB)?")
_MILLIS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_BYTES = {None: 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def read_duration(value: object) -> int:
    """`20s`, `24h` and the like in milliseconds; 0 needs no unit. Raises ValueError with what to write instead."""
    if value in (0, "0"):
        return 0
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("write a duration with its unit: 250ms, 20s, 5m, 24h or 7d")
    return int(match[1]) * _MILLIS[match[2]]


def _size(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("write a size in bytes or with its unit: 512KiB, 1MiB")
    return int(match[1]) * _BYTES[match[2]]


def _written(value: int, units: Mapping[str, int]) -> str:
    """`value` in the largest unit that leaves no remainder; 0 without one."""
    factor, unit = max(((factor, unit) for unit, factor in units.items() if value and value % factor == 0), default=(1, ""))
    return f"{value // factor}{unit}"


def _written_duration(value: int) -> str:
    return _written(value, _MILLIS)


def _written_size(value: int) -> str:
    return _written(value, {unit: factor for unit, factor in _BYTES.items() if unit})


def _listed(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _mapped(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise ValueError("in an environment variable a mapping is written as a JSON object") from error


Duration = Annotated[
    int,
    BeforeValidator(read_duration),
    PlainSerializer(_written_duration, when_used="json"),
    WithJsonSchema({"type": ["string", "integer"], "pattern": r"^(\d+(ms|s|m|h|d)|0)$", "maximum": 0}),
]
Size = Annotated[
    int,
    BeforeValidator(_size),
    PlainSerializer(_written_size, when_used="json"),
    WithJsonSchema({"type": ["string", "integer"], "pattern": r"^\d+(B|KiB|MiB|GiB)?$", "minimum": 0}),
]


def _least(least: int, written: str) -> AfterValidator:
    """`ge` for what is written with a unit: in pydantic's words the limit would have none."""

    def check(value: int) -> int:
        if value < least:
            raise ValueError(f"must be {written} or more")
        return value

    return AfterValidator(check)


Topic = Annotated[str, Field(pattern=TOPIC)]
Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]
Topics = Annotated[tuple[Topic, ...], BeforeValidator(_listed)]
Table = Annotated[dict[str, str], BeforeValidator(_mapped)]


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Secret(Section):
    """A reference to a secret: a file, read anew each time so that it can rotate, or an environment variable."""

    file: Path | None = None
    env: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_inline(cls, value: object) -> object:
        if isinstance(value, (Mapping, Secret)):
            return value
        raise ValueError("a secret is never written here: use {file: /path} or {env: NAME}")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.file is None) == (self.env is None):
            raise ValueError("name exactly one of file and env")
        return self

    @model_serializer
    def _reference(self) -> dict[str, str]:
        return {"file": str(self.file)} if self.file is not None else {"env": str(self.env)}

    def read(self) -> str:
        """The secret's text without one final newline. Raises ConfigError if it cannot be had. Blocks to read a small file."""
        if self.env is not None:
            try:
                return os.environ[self.env]
            except KeyError:
                raise ConfigError([Problem("", f"the environment variable {self.env} is not set")]) from None
        try:
            return Path(str(self.file)).read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise ConfigError([Problem("", f"the secret file {self.file} cannot be read: {why}")]) from None


class OAuth(Section):
    """OAUTHBEARER: a token from a file, or from a client-credentials endpoint."""

    token_file: Path | None = None
    token_endpoint: str | None = Field(None, pattern=HTTP_URL)
    client_id: str | None = None
    client_secret: Secret | None = None
    scope: str | None = None
    ca_file: Path | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.token_file is None) == (self.token_endpoint is None):
            raise ValueError("name exactly one of token_file and token_endpoint")
        if self.token_endpoint and not (self.client_id and self.client_secret):
            raise ValueError("token_endpoint needs client_id and client_secret")
        return self


class Sasl(Section):
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
    username: str | None = None
    password: Secret | None = None
    oauth: OAuth | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.mechanism == "OAUTHBEARER":
            if self.oauth is None:
                raise ValueError("OAUTHBEARER needs the oauth section")
        elif not (self.username and self.password):
            raise ValueError(f"{self.mechanism} needs username and password")
        return self


class Tls(Section):
    enabled: bool = False
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    key_password: Secret | None = None
    check_hostname: bool = True

    @model_validator(mode="after")
    def _pair(self) -> Self:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("a client certificate needs both cert_file and key_file")
        return self


class Kafka(Section):
    bootstrap_servers: Names = Field(("localhost:9092",), min_length=1)
    client_id: str = "acs-aaep-bridge"
    group_prefix: str = Field("acs-aaep-bridge", min_length=1)
    group_instance_id: str | None = None
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "zstd"
    idempotence: bool = True
    session_timeout: Duration = 45_000
    heartbeat_interval: Duration = 3_000
    max_poll_interval: Duration = 300_000
    rebalance_timeout: Duration = 30_000
    request_timeout: Duration = 40_000
    drain_timeout: Duration = 10_000
    transaction_timeout: Duration = 30_000
    max_poll_records: int = Field(1_000, ge=1)
    max_partition_fetch: Size = 256 << 10
    fetch_max: Size = 16 << 20
    max_in_flight: Annotated[Size, _least(1 << 20, "1MiB")] = 8 << 20
    tls: Tls = Tls()
    sasl: Sasl | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.drain_timeout < self.rebalance_timeout < self.request_timeout:
            raise ValueError(
                "drain_timeout < rebalance_timeout < request_timeout must hold, or a rebalance outlives its own budget"
            )
        if self.heartbeat_interval * 3 > self.session_timeout:
            raise ValueError("heartbeat_interval must be at most a third of session_timeout")
        return self


class Input(Section):
    topics: Topics = ("acs.events.raw",)
    pattern: str | None = None
    start: Literal["earliest", "latest"] = "earliest"
    on_out_of_range: Literal["block", "earliest", "latest"] = "block"
    formats: Annotated[tuple[Literal["json", "avro", "cloudevents"], ...], BeforeValidator(_listed)] = ("json", "cloudevents")
    replay_guard: bool = False

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if bool(self.topics) == (self.pattern is not None):
            raise ValueError("name either topics or a pattern (with topics: [])")
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise ValueError(f"pattern is not a regular expression: {error}") from error
        return self

    def includes(self, topic: str) -> bool:
        """Whether `topic` is (or would be) consumed."""
        return bool(re.match(self.pattern, topic)) if self.pattern is not None else topic in self.topics


class NewTopics(Section):
    """What `topics create` asks for; -1 takes the broker's default."""

    partitions: int = Field(12, ge=1)
    replication_factor: int = Field(-1, ge=-1)
    min_insync_replicas: int | None = Field(None, ge=1)
    retention: Duration | None = None
    dead_letter_retention: Duration | None = 1_209_600_000


class TopicNames(Section):
    normalized: Topic = "acs.events.normalized"
    lifecycle: Topic = "aaep.events.lifecycle"
    dead_letter: Topic = "acs.events.dead-letter"
    changelog: Topic = "acs-aaep-bridge.sessions"
    create: NewTopics = NewTopics()

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        names = (self.normalized, self.lifecycle, self.dead_letter, self.changelog)
        if len(set(names)) < len(names):
            raise ValueError("normalized, lifecycle, dead_letter and changelog must be four different topics")
        return self


class Acs(Section):
    final_chain_hash: Literal["required", "optional"] = "required"


class Signature(Section):
    mode: Literal["off", "verify", "require"] = "off"
    keys: Annotated[dict[str, Secret], BeforeValidator(_mapped)] = {}

    @model_validator(mode="after")
    def _has_keys(self) -> Self:
        if self.mode != "off" and not self.keys:
            raise ValueError(f"mode {self.mode} needs at least one key under keys, by key_id")
        return self


class Normalized(Section):
    format: Literal["json", "avro"] = "json"


class Lifecycle(Section):
    cloudevents: bool = False


class SchemaRegistry(Section):
    url: str | None = Field(None, pattern=HTTP_URL)
    auto_register: bool = True
    username: str | None = None
    password: Secret | None = None
    bearer_token: Secret | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    timeout: Annotated[Duration, _least(100, "100ms")] = 10_000

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.username is None) != (self.password is None):
            raise ValueError("basic authentication needs both username and password")
        if self.username is not None and self.bearer_token is not None:
            raise ValueError("name either username and password or bearer_token")
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("a client certificate needs both cert_file and key_file")
        if (self.ca_file or self.cert_file) and not (self.url or "").startswith("https:"):
            raise ValueError("ca_file and cert_file need an https url")
        return self


class Content(Section):
    language: Literal["en"] = "en"
    include_summary: bool = True
    redact: bool = True
    names: Table = {}
    agent_output: Literal["none", "root", "all"] = "none"
    agent_language: str = Field("und", pattern=LANGUAGE_TAG)
    include_arguments: bool = False


RISK_DEFAULTS = {
    "filesystem.delete": "high",
    "process.execute": "high",
    "payment.*": "high",
    "network.egress": "medium",
    "filesystem.write": "medium",
    "*": "low",
}


class HookMapping(Section):
    extension_context: str = Field("urn:acs-aaep-bridge:context:acs:v1", pattern=URI)
    risk: Annotated[dict[str, Literal["low", "medium", "high"]], BeforeValidator(_mapped)] = Field(
        default_factory=lambda: dict(RISK_DEFAULTS)  # type: ignore[arg-type]
    )


class Sessions(Section):
    grace: Annotated[Duration, _least(1_000, "1s")] = 5_000
    subagent_idle_timeout: Annotated[Duration, _least(1_000, "1s")] = 1_800_000
    idle_timeout: Duration = 86_400_000
    closed_retention: Duration = 3_600_000
    max_open_per_partition: int = Field(20_000, ge=1)


class Transaction(Section):
    """Bounds of one transaction. `interval` 0 takes max(100 ms, 10 ms x owned partitions)."""

    max_records: int = Field(5_000, ge=1)
    interval: Duration = 0


class DeadLetter(Section):
    max_consecutive: int = Field(500, ge=0)
    max_ratio: float = Field(0.5, ge=0, le=1)


class Limits(Section):
    max_depth: int = Field(64, ge=1, le=200)
    max_record_bytes: Size = 1 << 20
    max_batch: int = Field(1_000, ge=1)


class Shutdown(Section):
    timeout: Duration = 20_000


class Watchdog(Section):
    stall_after: Duration = 300_000


class Http(Section):
    host: str = "0.0.0.0"  # noqa: S104 - a scrape target in a container listens on every interface
    port: int = Field(9404, ge=0, le=65_535)


class Log(Section):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "console"] = "auto"


class Config(Section):
    """The whole configuration, checked. Immutable."""

    delivery: Literal["exactly_once", "at_least_once"] = "exactly_once"
    kafka: Kafka = Kafka()
    input: Input = Input()
    topics: TopicNames = TopicNames()
    acs: Acs = Acs()
    signature: Signature = Signature()
    normalized: Normalized = Normalized()
    lifecycle: Lifecycle = Lifecycle()
    schema_registry: SchemaRegistry = SchemaRegistry()
    content: Content = Content()
    mapping: HookMapping = HookMapping()
    sessions: Sessions = Sessions()
    transaction: Transaction = Transaction()
    dead_letter: DeadLetter = DeadLetter()
    limits: Limits = Limits()
    shutdown: Shutdown = Shutdown()
    watchdog: Watchdog = Watchdog()
    http: Http = Http()
    log: Log = Log()

    @model_validator(mode="after")
    def _no_loops(self) -> Self:
        for field in ("normalized", "lifecycle", "dead_letter", "changelog"):
            name = getattr(self.topics, field)
            if self.input.includes(name):
                raise ValueError(f"topics.{field} ({name}) is also an input topic: the bridge would consume its own output")
        if self.delivery == "exactly_once" and not self.kafka.idempotence:
            raise ValueError("delivery exactly_once needs kafka.idempotence: true")
        needs_registry = self.normalized.format == "avro" or "avro" in self.input.formats
        if needs_registry and self.schema_registry.url is None:
            raise ValueError("Avro needs schema_registry.url")
        if self.shutdown.timeout <= self.kafka.drain_timeout:
            raise ValueError("shutdown.timeout must be longer than kafka.drain_timeout")
        return self

    def group(self, stage: str) -> str:
        """The consumer group of a stage; also the first part of its transactional ids."""
        return f"{self.kafka.group_prefix}-{stage}"


def load(text: str, env: Mapping[str, str], overrides: Mapping[str, str] | None = None, source: str = "") -> Config:
    """The configuration in YAML `text`, overridden by `BRIDGE_*` names in `env`, then by dotted `overrides`.

    Raises ConfigError with every problem found; `source` is what the text is called there. Pure: reads no file and no process
    environment.
    """
    tree, problems = _parse(text, source)
    problems += _overlay(tree, env)
    for dotted, value in (overrides or {}).items():
        problems += _put(tree, dotted.split("."), value, f"--set {dotted}")
    try:
        config = Config.model_validate(tree)
    except ValidationError as error:
        problems += [Problem(*words(one)) for one in error.errors(include_url=False, include_input=False)]
    if problems:
        raise ConfigError(problems)
    return config


def load_file(path: Path | None, env: Mapping[str, str], overrides: Mapping[str, str] | None = None) -> Config:
    """`load` of a file's text; without a path the defaults and `env` alone. Raises ConfigError, also for an unreadable file."""
    if path is None:
        return load("", env, overrides)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError([Problem("", f"the configuration file {path} cannot be read: {why}")]) from None
    return load(text, env, overrides, str(path))


def _parse(text: str, source: str) -> tuple[dict[str, Any], list[Problem]]:
    try:
        tree = YAML(typ="safe", pure=True).load(io.StringIO(text))
    except MarkedYAMLError as error:
        what = str(error.problem).partition(" with value")[0]  # of a name that stands twice: its values are not to be shown
        if what.startswith("but ") and error.context:
            what = f"{error.context}, {what}"
        mark = error.problem_mark
        return {}, [_no_yaml(source, what, mark and (mark.line, mark.column))]
    except ReaderError as error:
        before = text[: error.position]
        place = before.count("\n"), len(before) - before.rfind("\n") - 1
        return {}, [_no_yaml(source, f"found the character U+{error.character:04X}, which YAML does not allow", place)]
    except YAMLError:
        return {}, [_no_yaml(source, "it cannot be read as one document", None)]
    if tree is None:
        return {}, []
    if not isinstance(tree, dict):
        return {}, [Problem(source, "the configuration is a mapping of sections, not a list or a single value")]
    return _without_empty_sections(tree, Config), []


def _no_yaml(source: str, what: str, place: tuple[int, int] | None) -> Problem:
    where = f"line {place[0] + 1}, column {place[1] + 1}: " if place else ""
    return Problem(source, f"not valid YAML: {where}{what}")


def _without_empty_sections(tree: dict[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """A section whose options are all commented out reads as null; it means the defaults."""
    kept: dict[str, Any] = {}
    for key, value in tree.items():
        inner = _nested(model, key)
        if inner is not None and value is None:
            continue
        kept[key] = _without_empty_sections(value, inner) if inner is not None and isinstance(value, dict) else value
    return kept


def _nested(model: type[BaseModel], name: str) -> type[BaseModel] | None:
    """The model of a section, None for an option (or a name that does not exist)."""
    field = model.model_fields.get(name)
    if field is None:
        return None
    kinds = (field.annotation, *getattr(field.annotation, "__args__", ()))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def _overlay(tree: dict[str, Any], env: Mapping[str, str]) -> list[Problem]:
    """Only names with `__` are ours: Kubernetes injects `BRIDGE_SERVICE_HOST` for a Service called bridge.

    `BRIDGE_<SECTION>__<KEY>` sets an option of a section, `BRIDGE__<KEY>` one that stands outside of all (`delivery`).
    """
    problems: list[Problem] = []
    for name in sorted(env):
        if name.startswith(ENV_PREFIX) and "__" in name:
            parts = name.removeprefix(ENV_PREFIX).lstrip("_").lower().split("__")
            value: object = {"env": name} if _is_secret(parts) else env[name]
            problems += _put(tree, parts, value, name)
    return problems


def _is_secret(parts: list[str]) -> bool:
    model: type[BaseModel] = Config
    for part in parts:
        inner = _nested(model, part)
        if inner is None:
            return False
        model = inner
    return model is Secret


def _put(tree: dict[str, Any], parts: list[str], value: object, source: str) -> list[Problem]:
    node = tree
    for part in parts[:-1]:
        child = node.get(part)
        if child is None:
            child = node[part] = {}
        if not isinstance(child, dict):
            return [Problem(source, f"{part} is not a section")]
        node = child
    if not parts:
        return [Problem(source, "names no option")]
    node[parts[-1]] = value
    return []
