"""The bridge as a process on a broker that lets nobody in unasked."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import traffic
from tests.bridge import Bridge, Secured, caught_up, running, secured, topics_for
from tests.brokers import publisher
from tests.brokers.certificates import KEY_PASSWORD
from tests.brokers.secure import SecureKafka, token
from tests.verdict import Evidence

MECHANISMS = {"PLAIN": "PLAIN", "SCRAM-SHA-256": "SCRAM", "SCRAM-SHA-512": "SCRAM", "OAUTHBEARER": "OAUTH"}


class Door:
    """Stands before a broker's port and counts who knocks."""

    def __init__(self, address: str) -> None:
        host, port = address.split(":")
        self._target = (host, int(port))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.knocks = 0
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def close(self) -> None:
        """End everything; what was connected sees it closed."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listening.close()

    def _accept(self) -> None:
        with ThreadPoolExecutor() as relays, suppress(OSError):
            while True:
                guest, _ = self._listening.accept()
                self.knocks += 1
                relays.submit(_relay, guest, socket.create_connection(self._target))


def _relay(guest: socket.socket, host: socket.socket) -> None:
    """Pass on what either says until either is gone."""
    with guest, host, selectors.DefaultSelector() as ready, suppress(OSError):
        ready.register(guest, selectors.EVENT_READ, host)
        ready.register(host, selectors.EVENT_READ, guest)
        while True:
            for key, _ in ready.select():
                data = key.fileobj.recv(1 << 16)  # type: ignore[union-attr]
                if not data:
                    return
                key.data.sendall(data)


@contextmanager
def door(address: str) -> Iterator[Door]:
    opened = Door(address)
    try:
        yield opened
    finally:
        opened.close()


def _way(secure: SecureKafka, name: str, folder: Path, **changes: Any) -> Secured:
    """A way in that works: by a mechanism, or `client certificate` with a locked key."""
    if name == "client certificate":
        way = secured(secure, "MUTUAL")
        key = secure.client.key.with_name(f"{secure.client.key.stem}.locked.key")
        files = {"cert_file": str(secure.client.certificate), "key_file": str(key), "key_password": {"env": "TEST_KEY_PASSWORD"}}
        way.settings["tls"] |= files
        way.environment["TEST_KEY_PASSWORD"] = KEY_PASSWORD
        return way
    way = secured(secure, MECHANISMS[name], name, **changes)
    if name == "OAUTHBEARER":
        file = folder / "token"
        file.write_text(token(), encoding="ascii")
        way.settings["sasl"] = {"mechanism": name, "oauth": {"token_file": str(file)}}
    return way


@pytest.mark.parametrize("name", [*MECHANISMS, "client certificate"])
def test_events_flow_by_every_way_in(secure_kafka: SecureKafka, tmp_path: Path, name: str) -> None:
    """Who comes in properly and may do what the bridge does gets everything done, exactly once."""
    secure_kafka.allow_all()
    try:
        names = topics_for(secure_kafka.bootstrap, "ways", 2)
        way = _way(secure_kafka, name, tmp_path)
        publisher.publish(secure_kafka.bootstrap, names.raw, list(traffic.fleet(3, 100)))
        with running(tmp_path, names.settings(kafka=way.settings), env=way.environment) as bridge:
            caught_up(names, bridge)
            assert bridge.stop() == 0, bridge.child.tail()
        Evidence(names, names.config()).check("exactly_once")
    finally:
        secure_kafka.allow_nothing()


class Refusal(NamedTuple):
    """A way in that must fail, and a word of the reason."""

    listener: str
    said: str
    mechanism: str | None = None
    tls: Mapping[str, Any] = {}


REFUSALS = {
    "wrong password, PLAIN": Refusal("PLAIN", "refused the credentials", "PLAIN"),
    "wrong password, SCRAM-SHA-256": Refusal("SCRAM", "refused the credentials", "SCRAM-SHA-256"),
    "wrong password, SCRAM-SHA-512": Refusal("SCRAM", "refused the credentials", "SCRAM-SHA-512"),
    "expired certificate": Refusal("EXPIRED", "expired"),
    "wrong host name": Refusal("WRONGHOST", "127.0.0.1"),
    "unknown authority": Refusal("TLS", "certificate", tls={"ca_file": None}),
    "no client certificate": Refusal("MUTUAL", "kafka.tls.cert_file"),
    "TLS not spoken": Refusal("TLS", "TLS", tls={"enabled": False}),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal_is_one_clear_error(secure_kafka: SecureKafka, tmp_path: Path, case: str) -> None:
    """Exit code 3, one line that says why, no traceback, and no storm of attempts."""
    refusal = REFUSALS[case]
    way = secured(secure_kafka, refusal.listener, refusal.mechanism, "a wrong one")
    way.settings["tls"] |= refusal.tls
    if way.settings["tls"]["ca_file"] is None:
        way.settings["tls"]["ca_file"] = str(secure_kafka.stranger.file)
    names = topics_for(secure_kafka.bootstrap, "refused", 1)
    with door(way.settings["bootstrap_servers"]) as opened:
        way.settings["bootstrap_servers"] = opened.address
        bridge = Bridge(tmp_path, names.settings(kafka=way.settings), env=way.environment)
        try:
            status = bridge.child.wait(60)
        finally:
            bridge.kill()
    output = bridge.child.output()
    assert status == 3, output
    errors = [line for line in output.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, output
    assert refusal.said in errors[0]
    assert "Traceback" not in output
    assert "a wrong one" not in output
    assert 1 <= opened.knocks <= 4, f"{opened.knocks} connections"
