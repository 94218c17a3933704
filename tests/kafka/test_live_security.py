"""On a broker that lets nobody in unasked: every way in works, and every refusal is one clear error."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus

import pytest
from aiohttp import web
from aiokafka import TopicPartition
from aiokafka.errors import AuthenticationFailedError
from confluent_kafka.admin import AclOperation, ResourceType
from tests.brokers.secure import PASSWORD, USER, SecureKafka, token
from tests.kafka.live import Site, bridge, finished

from acs_aaep_bridge.config import Config, OAuth, load
from acs_aaep_bridge.errors import AuthorizationError, BridgeError, BrokerUnreachable, ConfigError
from acs_aaep_bridge.kafka.client import Clients, Tokens, reach
from acs_aaep_bridge.kafka.ports import Ends
from acs_aaep_bridge.kafka.probe import KafkaProbe


def _settings(broker: SecureKafka, listener: str, tmp_path: Path, **sasl: Any) -> dict[str, Any]:
    """How to reach a listener, as a configuration file would say it."""
    kafka: dict[str, Any] = {
        "bootstrap_servers": broker.kafka.address(listener),
        "tls": {"enabled": True, "ca_file": str(broker.authority.file)},
    }
    if listener == "MUTUAL":
        kafka["tls"] |= {"cert_file": str(broker.client.certificate), "key_file": str(broker.client.key)}
    if sasl:
        secret = tmp_path / "password"
        secret.write_text(sasl.pop("password", PASSWORD))
        kafka["sasl"] = {"username": USER, "password": {"file": str(secret)}, **sasl}
    return {"kafka": kafka}


def _config(settings: dict[str, Any]) -> Config:
    return load(json.dumps(settings), {})


async def _reach(config: Config) -> None:
    await reach(Clients(config), config.kafka)


@pytest.mark.parametrize(
    ("listener", "mechanism"),
    [("TLS", None), ("MUTUAL", None), ("PLAIN", "PLAIN"), ("SCRAM", "SCRAM-SHA-256"), ("SCRAM", "SCRAM-SHA-512")],
)
async def test_every_way_in(secure_kafka: SecureKafka, tmp_path: Path, listener: str, mechanism: str | None) -> None:
    """TLS, a client certificate, PLAIN and both SCRAMs."""
    sasl = {"mechanism": mechanism} if mechanism else {}
    await _reach(_config(_settings(secure_kafka, listener, tmp_path, **sasl)))


async def test_a_token_from_a_file(secure_kafka: SecureKafka, tmp_path: Path) -> None:
    """OAUTHBEARER with a token that something else keeps fresh: read anew for each connection."""
    file = tmp_path / "token"
    file.write_text(token(lifetime=-60) + "\n")
    settings = _settings(secure_kafka, "OAUTH", tmp_path)
    settings["kafka"]["sasl"] = {"mechanism": "OAUTHBEARER", "oauth": {"token_file": str(file)}}
    clients = Clients(_config(settings))
    with pytest.raises(AuthorizationError, match="refused the credentials"):
        await reach(clients, _config(settings).kafka)
    file.write_text(token())
    await reach(clients, _config(settings).kafka)


@asynccontextmanager
async def _endpoint(answer: Any) -> AsyncIterator[tuple[str, list[Any]]]:
    """A client-credentials endpoint, and what it was asked."""
    asked: list[Any] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        asked.append((dict(await request.post()), request.headers.get("Authorization")))
        return web.json_response(answer) if isinstance(answer, dict) else web.Response(status=answer, text="no")

    app = web.Application()
    app.router.add_post("/token", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/token", asked
    finally:
        await runner.cleanup()


async def test_a_token_from_an_endpoint(secure_kafka: SecureKafka, tmp_path: Path) -> None:
    """OAUTHBEARER by client credentials: asked once, kept until shortly before it expires."""
    async with _endpoint({"access_token": token(), "expires_in": 3600}) as (url, asked):
        secret = tmp_path / "client-secret"
        secret.write_text("s3cret+")
        settings = _settings(secure_kafka, "OAUTH", tmp_path)
        oauth = {"token_endpoint": url, "client_id": "id", "client_secret": {"file": str(secret)}, "scope": "kafka"}
        settings["kafka"]["sasl"] = {"mechanism": "OAUTHBEARER", "oauth": oauth}
        config = _config(settings)
        clients = Clients(config)
        await reach(clients, config.kafka)
        await reach(clients, config.kafka)
    credentials = "Basic " + base64.b64encode(b"id:s3cret%2B").decode()  # RFC 6749, 2.3.1: form-encoded first
    assert asked == [({"grant_type": "client_credentials", "scope": "kafka"}, credentials)]


@pytest.mark.parametrize("value", ["s3cret", "a:b c+d%", "pässwörd", "пароль-密码-🔑"])
async def test_client_credentials_may_be_of_any_script(tmp_path: Path, value: str) -> None:
    """The endpoint gets what it would decode by RFC 6749, 2.3.1 (form-encoded UTF-8) to the very id and secret."""
    secret = tmp_path / "client-secret"
    secret.write_text(value, encoding="utf-8")
    async with _endpoint({"access_token": "t"}) as (url, asked):
        settings = {"token_endpoint": url, "client_id": f"id-{value}", "client_secret": {"file": str(secret)}}
        assert await Tokens(OAuth.model_validate(settings)).token() == "t"
    ((_, authorization),) = asked
    scheme, _, credentials = authorization.partition(" ")
    assert scheme == "Basic"
    found = [unquote_plus(part) for part in base64.b64decode(credentials).decode("ascii").split(":")]
    assert found == [f"id-{value}", value]


@pytest.mark.parametrize("answer", [401, 503, {"no": "token"}])
async def test_an_endpoint_that_gives_no_token(tmp_path: Path, answer: Any) -> None:
    """Its error is of the one kind that aiokafka survives, and shows neither secret nor answer."""
    secret = tmp_path / "client-secret"
    secret.write_text("s3cret")
    async with _endpoint(answer) as (url, _):
        oauth = OAuth.model_validate({"token_endpoint": url, "client_id": "id", "client_secret": {"file": str(secret)}})
        with pytest.raises(AuthenticationFailedError, match="no OAUTHBEARER token") as raised:
            await Tokens(oauth).token()
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    ("listener", "sasl", "error", "words"),
    [
        ("EXPIRED", {}, BrokerUnreachable, "certificate has expired"),
        ("WRONGHOST", {}, BrokerUnreachable, "IP address mismatch"),
        ("PLAIN", {"mechanism": "PLAIN", "password": "wrong"}, AuthorizationError, "refused the credentials"),
        ("SCRAM", {"mechanism": "SCRAM-SHA-512", "password": "wrong"}, AuthorizationError, "refused the credentials"),
        ("SCRAM", {"mechanism": "PLAIN"}, AuthorizationError, "refused the credentials"),
        ("PLAINTEXT", {}, BrokerUnreachable, "does this port speak TLS"),
    ],
)
async def test_every_refusal_is_one_clear_error(  # noqa: PLR0917 - one for each column of the table
    secure_kafka: SecureKafka, tmp_path: Path, listener: str, sasl: dict[str, str], error: type[BridgeError], words: str
) -> None:
    """It says what is wrong, exits with 3, and shows no password."""
    with pytest.raises(error, match=words) as raised:
        await _reach(_config(_settings(secure_kafka, listener, tmp_path, **sasl)))
    assert raised.value.exit_code == 3
    assert "wrong" not in str(raised.value)


async def test_an_authority_nobody_named(secure_kafka: SecureKafka, tmp_path: Path) -> None:
    """Without the authority's certificate the broker's is not accepted."""
    settings = _settings(secure_kafka, "TLS", tmp_path)
    settings["kafka"]["tls"]["ca_file"] = str(secure_kafka.stranger.file)
    with pytest.raises(BrokerUnreachable, match="certificate is not accepted"):
        await _reach(_config(settings))


async def test_the_host_name_check_can_be_given_up(secure_kafka: SecureKafka, tmp_path: Path) -> None:
    """`check_hostname: false` accepts another name, but no other authority."""
    settings = _settings(secure_kafka, "WRONGHOST", tmp_path)
    settings["kafka"]["tls"]["check_hostname"] = False
    await _reach(_config(settings))


async def test_plain_text_to_a_tls_port(secure_kafka: SecureKafka, tmp_path: Path) -> None:
    """The commonest slip gets the hint that mends it."""
    settings = _settings(secure_kafka, "TLS", tmp_path)
    del settings["kafka"]["tls"]
    with pytest.raises(BrokerUnreachable, match=r"set kafka\.tls\.enabled"):
        await _reach(_config(settings))


async def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    """A missing authority file is an error of the configuration, with the option's path."""
    config = _config({"kafka": {"tls": {"enabled": True, "ca_file": str(tmp_path / "missing.pem")}}})
    with pytest.raises(ConfigError, match=r"kafka\.tls\.ca_file"):
        Clients(config).settings("x")


GRANTS = [
    (ResourceType.TOPIC, "raw", [AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS]),
    (ResourceType.TOPIC, "normalized", [AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS]),
    (ResourceType.TOPIC, "letters", [AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS]),
]


async def test_lives_through_a_revoked_permission(secure_kafka: SecureKafka, tmp_path: Path) -> None:
    """With exactly the permissions it needs it works; without one it lives, says which, loses nothing, and goes on when
    it is given back."""
    site = Site(secure_kafka.bootstrap, 1)
    for kind, role, operations in GRANTS:
        secure_kafka.allow(kind, site.topic(role), *operations)
    secure_kafka.allow(ResourceType.GROUP, f"{site.name}-normalize", AclOperation.READ)
    identities = f"{site.name}-normalize/"
    wanted = (AclOperation.WRITE, AclOperation.DESCRIBE)
    secure_kafka.allow(ResourceType.TRANSACTIONAL_ID, identities, *wanted, prefixed=True)
    base = site.config(kafka__transaction_timeout="5s")
    reached = _config(_settings(secure_kafka, "SCRAM", tmp_path, mechanism="SCRAM-SHA-256")).kafka
    kafka = base.kafka.model_copy(update={name: getattr(reached, name) for name in ("bootstrap_servers", "tls", "sasl")})
    await site.fill("raw", 10)
    async with bridge(base.model_copy(update={"kafka": kafka})) as run:
        await run.until(finished(run, 10), 60)
        secure_kafka.forbid(ResourceType.TOPIC, site.topic("normalized"))
        await site.fill("raw", 10, start=10)
        await run.until(lambda: "Authorization" in " ".join(run.watcher.reasons["normalize"]), 60)
        hidden = f"the topic {site.topic('normalized')} may not be described"
        await run.until(lambda: hidden in " ".join(run.watcher.reasons["normalize"]), 60)
        asked = len(run.watcher.probes)
        await run.until(lambda: len(run.watcher.probes) > asked, 60)
        assert run.watcher.lags[TopicPartition(site.topic("raw"), 0)] == 10
        secure_kafka.allow(ResourceType.TOPIC, site.topic("normalized"), AclOperation.WRITE, AclOperation.DESCRIBE)
        await run.until(finished(run, 20), 90)
        await run.until(lambda: not run.watcher.reasons["normalize"], 60)
    assert await site.values("normalized") == [b"n:v%d" % number for number in range(20)]


async def _sees(probe: KafkaProbe, asked: list[TopicPartition], wanted: list[TopicPartition]) -> dict[TopicPartition, Ends]:
    """The ends, once they are of those that are wanted: the broker learns of a permission in its own time."""
    async with asyncio.timeout(30):
        while (ends := await probe.lags(asked)).keys() != set(wanted):
            await asyncio.sleep(0.1)
    return ends


@asynccontextmanager
async def _probe(broker: SecureKafka, topics: list[str], tmp_path: Path) -> AsyncIterator[KafkaProbe]:
    settings = _settings(broker, "SCRAM", tmp_path, mechanism="SCRAM-SHA-256")
    probe = KafkaProbe(Clients(_config(settings)).plain("probe"), topics)
    await probe.start()
    try:
        yield probe
    finally:
        await probe.stop()


async def test_one_hidden_topic_hides_no_other(secure_kafka: SecureKafka, tmp_path: Path) -> None:
    """The probe answers for what it may see, says which topic it may not, and sees it as soon as it may."""
    site = Site(secure_kafka.bootstrap, 2)
    seen, hidden = site.topic("raw"), site.topic("letters")
    both = [TopicPartition(topic, partition) for topic in (seen, hidden) for partition in (0, 1)]
    secure_kafka.allow(ResourceType.TOPIC, seen, AclOperation.DESCRIBE)
    await site.fill("raw", 1)
    async with _probe(secure_kafka, [seen, hidden], tmp_path) as probe:
        ends = await _sees(probe, both, both[:2])
        assert sum(high for _, high in ends.values()) == 1
        assert (probe.partitions(seen), probe.forbidden(seen)) == (2, False)
        assert (probe.partitions(hidden), probe.forbidden(hidden)) == (None, True)
        secure_kafka.allow(ResourceType.TOPIC, hidden, AclOperation.DESCRIBE)
        await _sees(probe, both, both)
        assert not probe.forbidden(hidden)


async def test_a_topic_hidden_while_asked_hides_no_other(
    secure_kafka: SecureKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A permission taken between the question for the leaders and the one for the offsets costs that topic's answer only."""
    site = Site(secure_kafka.bootstrap, 2)
    seen, hidden = site.topic("raw"), site.topic("letters")
    both = [TopicPartition(topic, partition) for topic in (seen, hidden) for partition in (0, 1)]
    for topic in (seen, hidden):
        secure_kafka.allow(ResourceType.TOPIC, topic, AclOperation.DESCRIBE)
    async with _probe(secure_kafka, [seen, hidden], tmp_path) as probe:
        await _sees(probe, both, both)

        def as_it_was() -> asyncio.Future[bool]:
            known: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            known.set_result(True)
            return known

        monkeypatch.setattr(probe.client, "force_metadata_update", as_it_was)
        secure_kafka.forbid(ResourceType.TOPIC, hidden)
        await _sees(probe, both, both[:2])
