"""Configuration to aiokafka clients: addresses, TLS, SASL. What must not be left to aiokafka's defaults is set here."""

from __future__ import annotations

import asyncio
import base64
import ssl
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import aiohttp
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import collect_hosts
from aiokafka.errors import AuthenticationFailedError, SaslAuthenticationFailed, UnsupportedSaslMechanismError

from acs_aaep_bridge.config import Config, Kafka, OAuth, Secret, Tls
from acs_aaep_bridge.errors import AuthorizationError, BrokerUnreachable, ConfigError, Problem
from acs_aaep_bridge.kafka import internals

METADATA_EVERY = 30_000  # how long a topic that a pattern matches may go unseen, in ms
_TOKEN_MARGIN = 30.0


class Clients:
    """Makes clients, all with the same connection settings. Files and secrets are read when a client is made.

    Making one raises ConfigError when a certificate or secret cannot be read; none of them connects before `start()`.
    """

    def __init__(self, config: Config) -> None:
        internals.forbid_topic_creation()
        internals.heed_refused_tokens()
        self._kafka = config.kafka
        oauth = config.kafka.sasl.oauth if config.kafka.sasl else None
        self._tokens = Tokens(oauth) if oauth else None
        self._context: tuple[object, ssl.SSLContext] | None = None

    def settings(self, name: str) -> dict[str, Any]:
        """What every kind of client takes. `name` becomes part of the client id."""
        kafka = self._kafka
        found: dict[str, Any] = {
            "bootstrap_servers": list(kafka.bootstrap_servers),
            "client_id": f"{kafka.client_id}-{name}",
            "request_timeout_ms": kafka.request_timeout,
            "metadata_max_age_ms": METADATA_EVERY,
            "security_protocol": ("SASL_" if kafka.sasl else "") + ("SSL" if kafka.tls.enabled else "PLAINTEXT"),
        }
        if kafka.tls.enabled:
            found["ssl_context"] = self._tls(kafka.tls)
        if kafka.sasl:
            found["sasl_mechanism"] = kafka.sasl.mechanism
            if self._tokens is not None:
                found["sasl_oauth_token_provider"] = self._tokens
            else:
                found["sasl_plain_username"] = kafka.sasl.username
                found["sasl_plain_password"] = _secret(kafka.sasl.password, "kafka.sasl.password")
        return found

    def member(self, stage: str, group: str) -> AIOKafkaConsumer:
        """A consumer for the group of a stage: never commits, never resets and never reads uncommitted data by itself."""
        kafka = self._kafka
        return AIOKafkaConsumer(
            **self.settings(stage),
            group_id=group,
            group_instance_id=kafka.group_instance_id,
            retry_backoff_ms=300,
            auto_offset_reset="none",
            enable_auto_commit=False,
            isolation_level="read_committed",
            session_timeout_ms=kafka.session_timeout,
            heartbeat_interval_ms=kafka.heartbeat_interval,
            rebalance_timeout_ms=kafka.rebalance_timeout,
            max_poll_interval_ms=kafka.max_poll_interval,
            max_poll_records=kafka.max_poll_records,
            max_partition_fetch_bytes=kafka.max_partition_fetch,
            fetch_max_bytes=kafka.fetch_max,
        )

    def reader(self, name: str, fetch_bytes: int = 1 << 20) -> AIOKafkaConsumer:
        """A read_committed consumer without a group, for reading partitions that the caller assigns."""
        return AIOKafkaConsumer(
            **self.settings(name),
            group_id=None,
            auto_offset_reset="none",
            enable_auto_commit=False,
            isolation_level="read_committed",
            max_partition_fetch_bytes=fetch_bytes,
            fetch_max_bytes=max(fetch_bytes, self._kafka.fetch_max),
        )

    def producer(self, name: str, transactional_id: str | None = None) -> AIOKafkaProducer:
        """A producer that waits for all replicas; with an id a transactional one, otherwise idempotent if so configured."""
        kafka = self._kafka
        options: dict[str, Any] = {"acks": "all", "enable_idempotence": kafka.idempotence}
        if transactional_id is not None:
            options |= {"transactional_id": transactional_id, "transaction_timeout_ms": kafka.transaction_timeout}
        return AIOKafkaProducer(
            **self.settings(name),
            **options,
            compression_type=None if kafka.compression == "none" else kafka.compression,
            max_request_size=1 << 30,  # sizes are checked against the topic's own limit, batch by batch
        )

    def admin(self) -> AIOKafkaAdminClient:
        """An admin client."""
        return AIOKafkaAdminClient(**self.settings("admin"))

    def plain(self, name: str) -> AIOKafkaClient:
        """A bare client, for metadata and offsets."""
        return AIOKafkaClient(**self.settings(name))

    def _tls(self, tls: Tls) -> ssl.SSLContext:
        """The context, made anew when one of its files has changed: loading the system's authorities takes 10 ms."""
        stamp = tuple(_modified(path) for path in (tls.ca_file, tls.cert_file, tls.key_file))
        if self._context is None or self._context[0] != stamp:
            self._context = (stamp, ssl_context(tls))
        return self._context[1]


def ssl_context(tls: Tls, section: str = "kafka.tls") -> ssl.SSLContext:
    """A client context that verifies the server. Raises ConfigError naming the option whose file cannot be used."""
    try:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=tls.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError([Problem(f"{section}.ca_file", f"{tls.ca_file} cannot be used: {_why(error)}")]) from None
    context.check_hostname = tls.check_hostname
    if tls.cert_file is not None:
        password = _secret(tls.key_password, f"{section}.key_password") if tls.key_password else ""
        try:
            # An empty password makes OpenSSL fail on an encrypted key; without one it would ask on the terminal.
            context.load_cert_chain(tls.cert_file, tls.key_file, password)
        except (OSError, ssl.SSLError) as error:
            message = f"{tls.cert_file} with {tls.key_file} cannot be used: {_why(error)}"
            raise ConfigError([Problem(f"{section}.cert_file", message)]) from None
    return context


class Tokens(AbstractTokenProvider):
    """OAUTHBEARER tokens from a file (read anew each time) or a client-credentials endpoint (kept until 30 s before expiry)."""

    def __init__(self, oauth: OAuth) -> None:
        self._oauth = oauth
        self._kept: tuple[str, float] | None = None
        self._lock = asyncio.Lock()

    async def token(self) -> str:
        """The bearer token. Raises AuthenticationFailedError, the one kind of error aiokafka survives here."""
        try:
            if self._oauth.token_file is not None:
                return (await asyncio.to_thread(self._oauth.token_file.read_text, encoding="ascii")).strip()
            async with self._lock:
                if self._kept is None or self._kept[1] <= time.monotonic():
                    self._kept = await self._fetch()
                return self._kept[0]
        except (OSError, ValueError, KeyError, TypeError, aiohttp.ClientError, TimeoutError, ConfigError) as error:
            source = self._oauth.token_file or self._oauth.token_endpoint
            raise AuthenticationFailedError(f"no OAUTHBEARER token from {source}: {_why(error)}") from None

    async def _fetch(self) -> tuple[str, float]:
        oauth = self._oauth
        form = {"grant_type": "client_credentials"} | ({"scope": oauth.scope} if oauth.scope else {})
        secret = _secret(oauth.client_secret, "kafka.sasl.oauth.client_secret")
        verify: ssl.SSLContext | bool = ssl.create_default_context(cafile=oauth.ca_file) if oauth.ca_file else True
        asked = time.monotonic()
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session,
            session.post(
                str(oauth.token_endpoint), data=form, ssl=verify, headers={"Authorization": _basic(str(oauth.client_id), secret)}
            ) as response,
        ):
            if response.status != 200:
                raise ValueError(f"the endpoint answered {response.status}")
            answer = await response.json()
        lifetime = float(answer.get("expires_in", 60))
        return str(answer["access_token"]), asked + max(lifetime - _TOKEN_MARGIN, lifetime / 2)


def _basic(client_id: str, secret: str) -> str:
    """Client credentials as RFC 6749, 2.3.1 wants them: each form-encoded first, so that a colon cannot mislead."""
    return "Basic " + base64.b64encode(f"{quote_plus(client_id)}:{quote_plus(secret)}".encode()).decode()


async def reach(clients: Clients, kafka: Kafka) -> None:
    """Connect to one bootstrap server. Raises AuthorizationError or BrokerUnreachable with what each of them answered.

    aiokafka itself would only log the reasons and raise that none could be reached.
    """
    settings = clients.settings("start")
    refused: list[str] = []
    unreachable: list[str] = []
    for host, port, _family in collect_hosts(list(kafka.bootstrap_servers), randomize=False):
        try:
            await internals.probe(host, port, settings)
        except (SaslAuthenticationFailed, UnsupportedSaslMechanismError, AuthenticationFailedError) as error:
            refused.append(f"{host}:{port}: {_why(error)}")
        except Exception as error:  # whatever it is, it is the reason why this server cannot be used
            unreachable.append(f"{host}:{port}: {_why_unreachable(error, kafka)}")
        else:
            return
    if refused:
        raise AuthorizationError(f"the broker refused the credentials (kafka.sasl): {'; '.join(refused)}")
    raise BrokerUnreachable(f"no broker of kafka.bootstrap_servers can be used: {'; '.join(unreachable)}")


def _why_unreachable(error: Exception, kafka: Kafka) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted ({error.verify_message}); see kafka.tls"
    if isinstance(error, ssl.SSLError):
        return f"the TLS handshake failed ({error.reason or error}); does this port speak TLS, and does it want a certificate?"
    if isinstance(error, TimeoutError):
        return "no answer within 10 s" + ("; does this port speak TLS?" if kafka.tls.enabled else "")
    if isinstance(error, OSError) and (error.strerror or str(error)):
        return error.strerror or str(error)
    hint = "; does this port speak TLS?" if kafka.tls.enabled else "; if this port speaks TLS, set kafka.tls.enabled"
    if kafka.tls.enabled and kafka.tls.cert_file is None and kafka.sasl is None:
        hint = "; does this port speak TLS, and does it want a client certificate (kafka.tls.cert_file and key_file)?"
    return f"it hung up during the handshake ({_why(error)}){hint}"


def _why(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _secret(secret: Secret | None, path: str) -> str:
    if secret is None:
        raise ConfigError([Problem(path, "is required")])
    try:
        return secret.read()
    except ConfigError as error:
        raise ConfigError([Problem(path, error.problems[0].message)]) from None


def _modified(path: Path | None) -> int | None:
    try:
        return path.stat().st_mtime_ns if path is not None else None
    except OSError:
        return None
