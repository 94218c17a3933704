"""The schema registry, by the HTTP API that Confluent's, Apicurio's, Karapace and Redpanda have in common.

Five endpoints on the HTTP client the bridge has anyway; docs/formats.md says which. What is not clearly the registry's own
answer is an outage: the records that need the schema wait, and are never rejected for it.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar
from urllib.parse import quote

import aiohttp
import orjson
import stamina

from acs_aaep_bridge.config import SchemaRegistry, Secret, Tls
from acs_aaep_bridge.core.model import WriterSchema
from acs_aaep_bridge.errors import AuthorizationError, BridgeError, ConfigError, Problem, RegistryError, RegistryUnavailable
from acs_aaep_bridge.kafka.client import ssl_context
from acs_aaep_bridge.kafka.observer import Observer

T = TypeVar("T")

_MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
_MAX_REFERENCES = 100
_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA = 40401, 40402, 40403
_HIGHEST_ID = (1 << 31) - 1  # a Java int: a registry asked for more answers that there is no such page
_ABSENT_FOR = 30.0
_FIRST_WAIT = 0.25
_START_ATTEMPTS = 4


class Answer(NamedTuple):
    status: int
    body: Any

    @property
    def code(self) -> int:
        """The registry's own error code, 0 when the body is not one of its errors."""
        code = self.body.get("error_code") if isinstance(self.body, dict) else None
        return code if isinstance(code, int) else 0


class Registry:
    """A schema registry. Use as a context manager. Schemas never change, so they are kept for the process's life."""

    def __init__(self, config: SchemaRegistry, observer: Observer) -> None:
        """Raises ConfigError when a certificate cannot be used."""
        if config.url is None:
            raise ValueError("a registry needs its url")
        self._config = config
        self._base = config.url.rstrip("/")
        self._observer = observer
        self._ssl = _context(config)
        self._session: aiohttp.ClientSession | None = None
        self._known: dict[int, WriterSchema] = {}
        self._absent: dict[int, float] = {}
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=self._config.timeout / 1000),
            connector=aiohttp.TCPConnector(ssl=self._ssl if self._ssl is not None else True, limit=4),
        )
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._session is not None:
            await self._session.close()

    async def fetch(self, schema_id: int) -> WriterSchema | None:
        """The schema with this id, its references included; None when the registry says that it has none.

        An answer of none stands for 30 seconds, since a schema may arrive after its records. Raises RegistryUnavailable,
        AuthorizationError or ConfigError: then nothing is known, and the records must wait.
        """
        if schema_id in self._known:
            return self._known[schema_id]
        if schema_id > _HIGHEST_ID:
            return None
        now = asyncio.get_running_loop().time()
        if now < self._absent.get(schema_id, 0.0):
            return None
        async with self._lock:
            if schema_id not in self._known:
                found = await self._reported(self._look_up(schema_id))
                if found is None:
                    self._absent = {key: until for key, until in self._absent.items() if now < until}
                    self._absent[schema_id] = asyncio.get_running_loop().time() + _ABSENT_FOR
                    return None
                self._known[schema_id] = found
        return self._known[schema_id]

    async def _reported(self, answer: Awaitable[T]) -> T:
        try:
            found = await answer
        except BridgeError:
            self._observer.connected("registry", up=False)
            raise
        self._observer.connected("registry", up=True)
        return found

    async def register(self, subject: str, schema: str) -> int:
        """The id of an Avro schema under its subject, for the start of the bridge.

        With `auto_register` it is registered if it is compatible with what the subject has; without, it must be there.
        Raises RegistryError or AuthorizationError with what to do; ConfigError for an unreadable secret.
        """
        try:
            async for attempt in stamina.retry_context(
                on=RegistryUnavailable, attempts=_START_ATTEMPTS, timeout=None, wait_initial=_FIRST_WAIT
            ):
                with attempt:
                    return await self._reported(self._register(subject, schema))
        except RegistryUnavailable as error:
            raise RegistryError(f"{error}: check schema_registry.url and that the registry is running") from None
        raise AssertionError("a retry ends in a result or an error")

    async def _register(self, subject: str, schema: str) -> int:
        path = f"/subjects/{quote(subject, safe='')}"
        body = {"schema": schema}
        if not self._config.auto_register:
            found = await self._request("POST", path, body)
            if found.status == 404 and found.code in {_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA}:
                raise RegistryError(
                    f"the schema registry does not have this version's schema under {subject}: register "
                    "schemas/normalized/event.avsc there, or set schema_registry.auto_register: true"
                )
            return self._id(found)
        await self._check_compatible(subject, body)
        registered = await self._request("POST", f"{path}/versions", body)
        if registered.status in {409, 422}:
            raise RegistryError(f"the schema registry refuses the schema of {subject}: {_said(registered)}")
        return self._id(registered)

    async def _check_compatible(self, subject: str, body: Mapping[str, Any]) -> None:
        path = f"/compatibility/subjects/{quote(subject, safe='')}/versions/latest?verbose=true"
        answer = await self._request("POST", path, body)
        if answer.status == 404 and answer.code in {_NO_SUBJECT, _NO_VERSION}:
            return
        verdict = answer.body.get("is_compatible") if answer.status == 200 and isinstance(answer.body, dict) else None
        if verdict is None:
            raise self._unexpected(answer)
        if not verdict:
            raise RegistryError(
                f"the schema is not compatible with the latest of {subject}: {_said(answer)}; "
                "docs/formats.md says how the schema may evolve"
            )

    async def _look_up(self, schema_id: int) -> WriterSchema | None:
        answer = await self._request("GET", f"/schemas/ids/{schema_id}")
        if answer.status == 404 and answer.code in {_NO_SUBJECT, _NO_VERSION, _NO_SCHEMA}:
            return None
        schema = self._schema(answer)
        references: dict[str, str] = {}
        await self._resolve(answer.body.get("references"), references)
        return schema._replace(references=tuple(references.items()))

    async def _resolve(self, listed: Any, found: dict[str, str]) -> None:
        """Add the texts of the listed references and of theirs, by name."""
        for reference in listed if isinstance(listed, list) else ():
            name = str(reference.get("name"))
            if name in found or len(found) >= _MAX_REFERENCES:
                continue
            subject, version = quote(str(reference.get("subject")), safe=""), quote(str(reference.get("version")), safe="")
            answer = await self._request("GET", f"/subjects/{subject}/versions/{version}")
            found[name] = self._schema(answer).text
            await self._resolve(answer.body.get("references"), found)

    def _schema(self, answer: Answer) -> WriterSchema:
        body = answer.body
        if answer.status != 200 or not isinstance(body, dict) or not isinstance(body.get("schema"), str):
            raise self._unexpected(answer)
        return WriterSchema(str(body.get("schemaType") or "AVRO"), body["schema"])

    def _id(self, answer: Answer) -> int:
        found = answer.body.get("id") if answer.status == 200 and isinstance(answer.body, dict) else None
        if not isinstance(found, int) or not 0 <= found <= _HIGHEST_ID:
            raise self._unexpected(answer)
        return found

    async def _request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        """One request. Raises RegistryUnavailable, AuthorizationError, or ConfigError for an unreadable secret."""
        if self._session is None:
            raise AssertionError("the registry is used outside its context")
        headers = {"Accept": f"{_MEDIA_TYPE}, application/json", **_credentials(self._config)}
        data = None
        if body is not None:
            headers["Content-Type"] = _MEDIA_TYPE
            data = orjson.dumps(body)
        try:
            async with self._session.request(method, self._base + path, data=data, headers=headers) as response:
                text = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise RegistryUnavailable(f"the schema registry {self._base} does not answer ({type(error).__name__})") from None
        if response.status in {401, 403}:
            raise AuthorizationError(
                f"the schema registry {self._base} refuses the credentials or the operation (HTTP {response.status}): "
                "check schema_registry.username, password or bearer_token"
            )
        try:
            return Answer(response.status, orjson.loads(text))
        except orjson.JSONDecodeError:
            return Answer(response.status, None)

    def _unexpected(self, answer: Answer) -> RegistryUnavailable:
        """What is not clearly the registry's own answer (a proxy's error page, a wrong path) counts as no answer."""
        code = f", error code {answer.code}" if answer.code else ""
        return RegistryUnavailable(f"the schema registry {self._base} gave an unexpected answer (HTTP {answer.status}{code})")


def subject_of(topic: str) -> str:
    """The subject of a topic's values by TopicNameStrategy."""
    return f"{topic}-value"


def _said(answer: Answer) -> str:
    body = answer.body if isinstance(answer.body, dict) else {}
    listed = body.get("messages")
    parts = listed if isinstance(listed, list) else [body.get("reason") or body.get("message") or f"HTTP {answer.status}"]
    return "; ".join(str(part) for part in parts)[:500]


def _credentials(config: SchemaRegistry) -> dict[str, str]:
    """Read anew for each request: tokens rotate, and there is one request for each schema in a process's life."""
    if config.username is not None and config.password is not None:
        # RFC 7617 in UTF-8; aiohttp's own helper encodes Latin-1.
        pair = f"{config.username}:{_read(config.password, 'password')}".encode()
        return {"Authorization": "Basic " + b64encode(pair).decode()}
    if config.bearer_token is not None:
        return {"Authorization": "Bearer " + _read(config.bearer_token, "bearer_token").strip()}
    return {}


def _read(secret: Secret, option: str) -> str:
    try:
        return secret.read()
    except ConfigError as error:
        raise ConfigError([Problem(f"schema_registry.{option}", error.problems[0].message)]) from None


def _context(config: SchemaRegistry) -> Any:
    if not (config.url or "").startswith("https:"):
        return None
    tls = Tls(enabled=True, ca_file=config.ca_file, cert_file=config.cert_file, key_file=config.key_file)
    return ssl_context(tls, "schema_registry")
