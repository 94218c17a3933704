"""The schema registry client, against a real registry; what a registry rarely does is played by a server of our own."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.brokers.certificates import Authority
from tests.brokers.process import free_ports
from tests.brokers.registry import SchemaRegistry

from acs_aaep_bridge.config import SchemaRegistry as Settings
from acs_aaep_bridge.core.encode_avro import normalized_schema
from acs_aaep_bridge.core.model import WriterSchema
from acs_aaep_bridge.errors import AuthorizationError, ConfigError, RegistryError, RegistryUnavailable
from acs_aaep_bridge.kafka.observer import NullObserver
from acs_aaep_bridge.kafka.registry import Registry, subject_of

SMALL = '{"type":"record","name":"N","fields":[{"name":"a","type":"string"}]}'
GROWN = '{"type":"record","name":"N","fields":[{"name":"a","type":"string"},{"name":"b","type":"int","default":1}]}'
BROKEN = '{"type":"record","name":"N","fields":[{"name":"a","type":"string"},{"name":"b","type":"int"}]}'


class Seen(NullObserver):
    """Remembers whether the registry was reached."""

    def __init__(self) -> None:
        self.up: list[bool] = []

    def connected(self, role: str, up: bool) -> None:
        assert role == "registry"
        self.up.append(up)


def registry(url: str, observer: NullObserver | None = None, **options: Any) -> Registry:
    return Registry(Settings.model_validate({"url": url, **options}), observer or NullObserver())


async def test_our_schema_is_registered_and_found_again(schema_registry: SchemaRegistry) -> None:
    """The same id each time; what the registry gives back is the schema we write with."""
    subject = subject_of("registered")
    assert subject == "registered-value"
    async with registry(schema_registry.url) as one:
        found = await one.register(subject, normalized_schema())
        assert await one.register(subject, normalized_schema()) == found
        schema = await one.fetch(found)
    assert schema is not None
    assert schema.kind == "AVRO"
    assert json.loads(schema.text) == json.loads(normalized_schema())
    assert schema_registry.ask("GET", f"/subjects/{subject}/versions") == [1]


async def test_without_auto_register_the_schema_must_be_there(schema_registry: SchemaRegistry) -> None:
    """The error says where to register what; once it is there, its id is used and nothing is written."""
    async with registry(schema_registry.url, auto_register=False) as one:
        with pytest.raises(RegistryError, match=r"schemas/normalized/event\.avsc"):
            await one.register("reviewed-value", SMALL)
        found = schema_registry.ask("POST", "/subjects/reviewed-value/versions", {"schema": SMALL})["id"]
        assert await one.register("reviewed-value", SMALL) == found
        with pytest.raises(RegistryError):
            await one.register("reviewed-value", GROWN)
    assert schema_registry.ask("GET", "/subjects/reviewed-value/versions") == [1]


async def test_an_incompatible_schema_is_refused_at_the_start(schema_registry: SchemaRegistry) -> None:
    """The registry's compatibility level decides; its reason is part of the message."""
    schema_registry.ask("POST", "/subjects/evolving-value/versions", {"schema": SMALL})
    schema_registry.ask("PUT", "/config/evolving-value", {"compatibility": "BACKWARD"})
    async with registry(schema_registry.url) as one:
        with pytest.raises(RegistryError, match=r"not compatible with the latest of evolving-value: .*fields"):
            await one.register("evolving-value", BROKEN)
        assert await one.register("evolving-value", GROWN)
    assert schema_registry.ask("GET", "/subjects/evolving-value/versions") == [1, 2]


async def test_references_come_with_the_schema(schema_registry: SchemaRegistry) -> None:
    """Also those of a reference."""
    names = ["A", "B", "C"]
    for number, name in enumerate(names):
        fields = [{"name": "x", "type": names[number - 1] if number else "int"}]
        reference = {"name": names[number - 1], "subject": f"ref-{names[number - 1]}", "version": 1}
        body = {
            "schema": json.dumps({"type": "record", "name": name, "fields": fields}),
            "references": [reference] if number else [],
        }
        found = schema_registry.ask("POST", f"/subjects/ref-{name}/versions", body)["id"]
    async with registry(schema_registry.url) as one:
        schema = await one.fetch(found)
    assert schema is not None
    assert sorted(name for name, _ in schema.references) == ["A", "B"]


async def test_json_schemas_are_told_from_avro(schema_registry: SchemaRegistry) -> None:
    """What follows the id is then JSON text."""
    text = '{"$schema":"http://json-schema.org/draft-07/schema#","type":"object"}'
    found = schema_registry.ask("POST", "/subjects/plain-value/versions", {"schema": text, "schemaType": "JSON"})["id"]
    async with registry(schema_registry.url) as one:
        assert await one.fetch(found) == WriterSchema("JSON", text)


async def test_an_id_the_registry_does_not_have_is_none(schema_registry: SchemaRegistry) -> None:
    """That is an answer, not an outage. Ids are signed 32-bit integers everywhere, so others are not even asked for."""
    async with registry(schema_registry.url) as one:
        assert [await one.fetch(found) for found in (2**31 - 1, 2**31, 2**32 - 1)] == [None] * 3


# From here on the server is our own: errors, outages, credentials and TLS.

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
FOUND = {"schema": SMALL}


@asynccontextmanager
async def serving(handler: Handler, context: ssl.SSLContext | None = None, port: int = 0) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
    host, bound = runner.addresses[0][:2]
    try:
        yield f"{'https' if context else 'http'}://{host}:{bound}"
    finally:
        await runner.cleanup()


def answering(*answers: tuple[int, Any]) -> tuple[Handler, list[str]]:
    """Answers in turn, the last one for ever. Text that is not JSON is sent as a page."""
    asked: list[str] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        asked.append(f"{request.method} {request.path_qs}")
        status, body = answers[min(len(asked), len(answers)) - 1]
        return web.Response(status=status, text=body) if isinstance(body, str) else web.json_response(body, status=status)

    return handler, asked


OUTAGES = [(503, "down"), (404, "<html>no such page</html>"), (500, {"error_code": 50001}), (200, "{"), (200, {"id": 5})]


async def test_what_is_not_the_registrys_own_answer_is_an_outage(unused_port: int) -> None:
    """Nobody listens, or pages and server errors come: nothing is known, and the next attempt may succeed."""
    observer = Seen()
    handler, asked = answering(*OUTAGES, (200, FOUND))
    async with registry(f"http://127.0.0.1:{unused_port}", observer) as one:
        with pytest.raises(RegistryUnavailable, match="does not answer"):
            await one.fetch(5)
        async with serving(handler, port=unused_port):
            for _ in OUTAGES:
                with pytest.raises(RegistryUnavailable, match="unexpected answer"):
                    await one.fetch(5)
            assert await one.fetch(5) == WriterSchema("AVRO", SMALL)
    assert asked == ["GET /schemas/ids/5"] * (len(OUTAGES) + 1)
    assert observer.up == [False] * (len(OUTAGES) + 1) + [True]


async def test_a_registry_that_says_nothing_is_an_outage() -> None:
    """After schema_registry.timeout."""

    async def silent(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(30)
        return web.Response()

    async with serving(silent) as url, registry(url, timeout="100ms") as one:
        with pytest.raises(RegistryUnavailable, match="TimeoutError"):
            await one.fetch(5)


@pytest.mark.parametrize("status", [401, 403])
async def test_refused_credentials_are_no_answer(status: int) -> None:
    """A rotated password must not turn good records into dead letters."""
    handler, _ = answering((status, {"error_code": status}), (200, FOUND))
    async with serving(handler) as url, registry(url) as one:
        with pytest.raises(AuthorizationError, match=f"HTTP {status}"):
            await one.fetch(5)
        assert await one.fetch(5) == WriterSchema("AVRO", SMALL)


async def test_a_schema_is_fetched_once() -> None:
    """Also when several partitions want it at the same time."""
    handler, asked = answering((200, FOUND))
    async with serving(handler) as url, registry(url) as one:
        first, *others = await asyncio.gather(*(one.fetch(5) for _ in range(5)))
        assert [await one.fetch(5), *others] == [first] * 5
    assert asked == ["GET /schemas/ids/5"]


async def test_an_unknown_id_is_not_asked_for_again_at_once() -> None:
    """Garbage that begins with a zero byte must not become a flood of requests."""
    handler, asked = answering((404, {"error_code": 40403, "message": "Schema not found"}))
    async with serving(handler) as url, registry(url) as one:
        assert [await one.fetch(5) for _ in range(3)] == [None] * 3
    assert asked == ["GET /schemas/ids/5"]


async def test_at_the_start_an_outage_ends_in_an_error(unused_port: int) -> None:
    """After a few attempts, with the option to look at."""
    async with registry(f"http://127.0.0.1:{unused_port}") as one:
        with pytest.raises(RegistryError, match=r"schema_registry\.url"):
            await one.register("x-value", SMALL)


async def test_at_the_start_refused_credentials_end_in_an_error() -> None:
    """At once: trying again would not help."""
    handler, asked = answering((401, {"error_code": 401}))
    async with serving(handler) as url, registry(url) as one:
        with pytest.raises(AuthorizationError, match="HTTP 401"):
            await one.register("x-value", SMALL)
    assert len(asked) == 1


async def test_a_subject_is_quoted_and_the_base_path_kept() -> None:
    """A registry may live under a path."""
    handler, asked = answering((200, {"is_compatible": True}), (200, {"id": 9}))
    async with serving(handler) as url, registry(f"{url}/apis/ccompat/v7/") as one:
        assert await one.register("a.b_c-value", SMALL) == 9
    assert asked == [
        "POST /apis/ccompat/v7/compatibility/subjects/a.b_c-value/versions/latest?verbose=true",
        "POST /apis/ccompat/v7/subjects/a.b_c-value/versions",
    ]


def guarded(expected: str) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        allowed = request.headers.get("Authorization") == expected
        return web.json_response(FOUND if allowed else {"error_code": 401}, status=200 if allowed else 401)

    return handler


async def test_basic_authentication(tmp_path: Path) -> None:
    """In UTF-8, and read anew for each request: the password may rotate while records wait."""
    secret = tmp_path / "password"
    secret.write_text("old\n", encoding="utf-8")
    credentials: dict[str, Any] = {"username": "bridge", "password": {"file": str(secret)}}
    expected = "Basic " + base64.b64encode("bridge:né:w".encode()).decode()
    async with serving(guarded(expected)) as url, registry(url, **credentials) as one:
        with pytest.raises(AuthorizationError):
            await one.fetch(5)
        secret.write_text("né:w\n", encoding="utf-8")
        assert await one.fetch(5) == WriterSchema("AVRO", SMALL)


async def test_bearer_authentication(tmp_path: Path) -> None:
    """The token comes from a file."""
    secret = tmp_path / "token"
    secret.write_text("t0k3n\n", encoding="utf-8")
    async with serving(guarded("Bearer t0k3n")) as url, registry(url, bearer_token={"file": str(secret)}) as one:
        assert await one.fetch(5) == WriterSchema("AVRO", SMALL)


async def test_an_unreadable_secret_is_named_at_the_start(tmp_path: Path) -> None:
    """By its option and its file."""
    async with registry("http://127.0.0.1:1", bearer_token={"file": str(tmp_path / "none")}) as one:
        with pytest.raises(ConfigError, match=r"schema_registry\.bearer_token: .*none"):
            await one.register("x-value", SMALL)


async def test_tls_with_a_client_certificate(tmp_path: Path) -> None:
    """The server is verified against ca_file and asks for ours; one of another authority is not believed."""
    authority = Authority(tmp_path / "ours")
    server, client = authority.server("registry"), authority.client("bridge")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.file)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(server.certificate, server.key)
    handler, _ = answering((200, FOUND))
    ours: dict[str, Any] = {"cert_file": str(client.certificate), "key_file": str(client.key)}
    async with serving(handler, context) as url:
        async with registry(url, ca_file=str(authority.file), **ours) as one:
            assert await one.fetch(5) == WriterSchema("AVRO", SMALL)
        stranger = Authority(tmp_path / "theirs")
        async with registry(url, ca_file=str(stranger.file), **ours) as one:
            with pytest.raises(RegistryError, match="Certificate"):
                await one.register("x-value", SMALL)


def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """When the client is made, with the option."""
    (tmp_path / "ca.pem").write_text("nonsense", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"schema_registry\.ca_file"):
        registry("https://127.0.0.1:1", ca_file=str(tmp_path / "ca.pem"))


@pytest.fixture
def unused_port() -> int:
    """Nobody listens there now, and nobody is given it by chance."""
    return free_ports(1)[0]
