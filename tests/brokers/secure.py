"""A Kafka that lets nobody in unasked: a listener for each way to prove who one is, and an authorizer behind all of them."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Final, cast

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from .certificates import Authority, Identity
from .kafka import Kafka, Listener

USER: Final = "bridge"
PASSWORD: Final = "correct horse battery staple"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_UNSECURED = "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"


class SecureKafka:
    """One broker. `kafka.address(NAME)` gives the listener: TLS, MUTUAL, EXPIRED, WRONGHOST, PLAIN, SCRAM or OAUTH.

    PLAINTEXT is the administrator's, for the tests themselves: whoever comes that way, or by TLS without a client
    certificate, may do everything. `USER` is who one becomes by PLAIN, SCRAM, OAUTH and, with `client`, MUTUAL; it may do
    nothing until `allow` is called.
    """

    def __init__(self, home: Path) -> None:
        self.authority = Authority(home / "certificates")
        self.stranger = Authority(home / "stranger", "an authority nobody trusts")
        self.client = self.authority.client(USER)
        self.expired_client = self.authority.client("expired-client", expired=True)
        server = self.authority.server("server")
        expired = self.authority.server("expired", expired=True)
        elsewhere = self.authority.server("elsewhere", host="kafka.example.net")
        listeners = (
            Listener("TLS", "SSL", self._tls(server)),
            Listener("MUTUAL", "SSL", self._tls(server) | self._asks_client()),
            Listener("EXPIRED", "SSL", self._tls(expired)),
            Listener("WRONGHOST", "SSL", self._tls(elsewhere)),
            Listener("PLAIN", "SASL_SSL", self._tls(server) | _plain()),
            Listener("SCRAM", "SASL_SSL", self._tls(server) | _scram()),
            Listener("OAUTH", "SASL_SSL", self._tls(server) | _oauth()),
        )
        settings = {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "allow.everyone.if.no.acl.found": "false",
            "num.network.threads": "1",
            "connections.max.reauth.ms": "0",
        }
        self.kafka = Kafka(home, listeners=listeners, settings=settings)

    @property
    def bootstrap(self) -> str:
        """The administrator's address."""
        return self.kafka.bootstrap

    def start(self) -> None:
        self.kafka.start()
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            wanted = UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
            self.admin.alter_user_scram_credentials([wanted])[USER].result(timeout=20)

    def stop(self) -> None:
        self.kafka.stop()

    def allow(self, kind: ResourceType, name: str, *operations: AclOperation, prefixed: bool = False) -> None:
        """Let `USER` do `operations` on the resource `name`, or on all whose name begins with it."""
        pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
        rules = [
            AclBinding(kind, name, pattern, f"User:{USER}", "*", operation, AclPermissionType.ALLOW) for operation in operations
        ]
        for done in self.admin.create_acls(rules).values():
            done.result(timeout=20)

    def allow_all(self) -> None:
        for kind, name in ((ResourceType.TOPIC, "*"), (ResourceType.GROUP, "*"), (ResourceType.TRANSACTIONAL_ID, "*")):
            self.allow(kind, name, AclOperation.ALL)
        self.allow(ResourceType.BROKER, "kafka-cluster", AclOperation.ALL)

    def allow_nothing(self) -> None:
        """Take every permission back."""
        self.forbid(ResourceType.ANY, None)

    def forbid(self, kind: ResourceType, name: str | None) -> None:
        """Take back what `USER` may do on this resource; None is any name."""
        # Its stubs do not know that None matches every name and host.
        wanted, anywhere = cast(str, name), cast(str, None)
        patterns, mine = ResourcePatternType.ANY, f"User:{USER}"
        every = AclBindingFilter(kind, wanted, patterns, mine, anywhere, AclOperation.ANY, AclPermissionType.ANY)
        for done in self.admin.delete_acls([every]).values():
            done.result(timeout=20)

    def _tls(self, identity: Identity) -> dict[str, str]:
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(identity.both),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.file),
        }

    def _asks_client(self) -> dict[str, str]:
        return {"ssl.client.auth": "required", "ssl.principal.mapping.rules": "RULE:^CN=(.*?)(,.*)?$/$1/"}


def token(subject: str = USER, *, lifetime: float = 3600.0) -> str:
    """An unsecured OAUTHBEARER token, as the test broker takes them. A negative `lifetime` gives an expired one."""
    now = time.time()
    parts = ({"alg": "none"}, {"sub": subject, "iat": min(now, now + lifetime - 60), "exp": now + lifetime})
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join([*encoded, ""])


def _plain() -> dict[str, str]:
    return {"sasl.enabled.mechanisms": "PLAIN", "plain.sasl.jaas.config": f'{_PLAIN} required user_{USER}="{PASSWORD}";'}


def _scram() -> dict[str, str]:
    return {
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "scram-sha-256.sasl.jaas.config": f"{_SCRAM} required;",
        "scram-sha-512.sasl.jaas.config": f"{_SCRAM} required;",
    }


def _oauth() -> dict[str, str]:
    return {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "oauthbearer.sasl.jaas.config": f'{_OAUTH} required unsecuredLoginStringClaim_sub="broker";',
        "oauthbearer.sasl.server.callback.handler.class": _UNSECURED,
    }
