"""The bridge as its users run it: a process of its own, on topics of its own, watched from outside."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from acs_aaep_bridge.config import Config, load
from tests.brokers import topics
from tests.brokers.process import Child, free_ports, until
from tests.brokers.secure import PASSWORD, USER, SecureKafka

ROOT = Path(__file__).resolve().parent.parent
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True)
class Names:
    """Topics and groups that nobody else uses, and the configuration that names them."""

    bootstrap: str
    prefix: str

    @property
    def raw(self) -> str:
        return f"{self.prefix}.raw"

    @property
    def normalized(self) -> str:
        return f"{self.prefix}.normalized"

    @property
    def lifecycle(self) -> str:
        return f"{self.prefix}.lifecycle"

    @property
    def dead_letter(self) -> str:
        return f"{self.prefix}.dead-letter"

    @property
    def changelog(self) -> str:
        return f"{self.prefix}.sessions"

    def group(self, stage: str) -> str:
        return f"{self.prefix}-{stage}"

    def settings(self, **sections: Mapping[str, Any] | str) -> dict[str, Any]:
        """The configuration file as a tree; `sections` are laid over it."""
        tree: dict[str, Any] = {
            "kafka": {"bootstrap_servers": self.bootstrap, "group_prefix": self.prefix},
            "input": {"topics": [self.raw]},
            "topics": {
                "normalized": self.normalized,
                "lifecycle": self.lifecycle,
                "dead_letter": self.dead_letter,
                "changelog": self.changelog,
            },
            "http": {"host": "127.0.0.1", "port": free_ports(1)[0]},
            "log": {"format": "json"},
        }
        for name, section in sections.items():
            tree[name] = section if isinstance(section, str) else {**tree.get(name, {}), **section}
        return tree

    def config(self, **sections: Mapping[str, Any] | str) -> Config:
        return load(json.dumps(self.settings(**sections)), {})


def topics_for(bootstrap: str, name: str, partitions: int) -> Names:
    """Fresh topics as a bridge wants them, `partitions` each."""
    names = Names(bootstrap, topics.unique(name))
    big = {"max.message.bytes": str(4 << 20)}
    every = (names.raw, names.normalized, names.lifecycle, names.dead_letter, names.changelog)
    special = {names.raw: big, names.dead_letter: big, names.changelog: {"cleanup.policy": "compact"}}
    topics.create(bootstrap, dict.fromkeys(every, partitions), special)
    return names


class Secured(NamedTuple):
    """The `kafka` section for one way in, and the environment its secrets are in."""

    settings: dict[str, Any]
    environment: dict[str, str]


def secured(secure: SecureKafka, listener: str, mechanism: str | None = None, password: str = PASSWORD) -> Secured:
    """How the user of the secure broker comes in by `listener`: with a password, with a token file, or by TLS alone."""
    settings: dict[str, Any] = {
        "bootstrap_servers": secure.kafka.address(listener),
        "tls": {"enabled": True, "ca_file": str(secure.authority.file)},
    }
    if mechanism is not None:
        settings["sasl"] = {"mechanism": mechanism, "username": USER, "password": {"env": "TEST_KAFKA_PASSWORD"}}
    return Secured(settings, {"TEST_KAFKA_PASSWORD": password})


class Bridge:
    """One bridge process. `settings` is what its configuration file says; `entry` the module that is run."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, Any],
        *arguments: str,
        env: Mapping[str, str] | None = None,
        entry: str = "acs_aaep_bridge",
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        number = len(list(folder.glob("bridge-*.yaml")))
        config = folder / f"bridge-{number}.yaml"
        config.write_text(json.dumps(settings), encoding="utf-8")  # JSON is YAML
        self.port = int(settings.get("http", {}).get("port", 9404))
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("BRIDGE_")}
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        command = [sys.executable, "-m", entry, "run", "--config", str(config), *arguments]
        self.child = Child(command, folder / f"bridge-{number}.log", {**inherited, "PYTHONPATH": path, **(env or {})})

    @property
    def pid(self) -> int:
        return self.child.pid

    def get(self, path: str) -> tuple[int, str]:
        """Status and body; (0, "") when nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def ready(self) -> bool:
        return self.get("/readyz")[0] == 200

    def wait_ready(self, timeout: float = 60.0) -> None:
        """Return when `/readyz` says so; AssertionError with the log's tail if it ends or does not get there."""

        def settled() -> bool:
            return not self.child.running() or self.ready()

        try:
            until(settled, timeout, "the bridge is ready", pause=0.1)
        except AssertionError as error:
            raise AssertionError(f"{error}; /readyz: {self.get('/readyz')}\n{self.child.tail()}") from None
        if not self.child.running():
            raise AssertionError(f"the bridge ended with {self.child.process.returncode}\n{self.child.tail()}")

    def metrics(self) -> dict[str, list[tuple[dict[str, str], float]]]:
        """The samples of `/metrics` by name, with their labels; the prefix is left out."""
        found: dict[str, list[tuple[dict[str, str], float]]] = {}
        for line in self.get("/metrics")[1].splitlines():
            match = _SAMPLE.match(line)
            if match:
                name = match[1].removeprefix("acs_aaep_bridge_")
                found.setdefault(name, []).append((dict(_LABEL.findall(match[2] or "")), float(match[3])))
        return found

    def total(self, name: str, *by: str) -> Counter[tuple[str, ...]]:
        """The samples of one counter, summed by some of its labels; what is 0 is left out."""
        found: Counter[tuple[str, ...]] = Counter()
        for labels, value in self.metrics().get(name, []):
            if value:
                found[tuple(labels[label] for label in by)] += int(value)
        return found

    def stop(self, timeout: float = 30.0) -> int:
        """SIGTERM; the exit status."""
        return self.child.stop(timeout)

    def kill(self) -> None:
        self.child.send(signal.SIGCONT)
        self.child.kill()


@contextmanager
def running(folder: Path, settings: Mapping[str, Any], *arguments: str, **options: Any) -> Iterator[Bridge]:
    """A bridge that is ready, and is gone after the block however it ends."""
    bridge = Bridge(folder, settings, *arguments, **options)
    try:
        bridge.wait_ready()
        yield bridge
    finally:
        bridge.kill()


def caught_up(names: Names, *bridges: Bridge, timeout: float = 120.0) -> None:
    """Return when both stages have committed past the last record of their input. Nothing may be published meanwhile."""
    _consumed(names, "normalize", names.raw, timeout, bridges)
    _consumed(names, "lifecycle", names.normalized, timeout, bridges)


def _consumed(names: Names, stage: str, topic: str, timeout: float, bridges: tuple[Bridge, ...]) -> None:
    wanted = last_offsets(names.bootstrap, topic)
    asked = topics.Committed(names.bootstrap, names.group(stage), topic, topics.count(names.bootstrap, topic))
    seen: dict[int, int] = {}

    def done() -> bool:
        for bridge in bridges:
            if not bridge.child.running():
                raise AssertionError(f"the bridge ended with {bridge.child.process.returncode}\n{bridge.child.tail()}")
        seen.update(asked.read())
        return all(seen.get(partition, 0) > last for partition, last in wanted.items())

    try:
        until(done, timeout, f"{stage} has consumed {topic}", pause=0.1)
    except AssertionError as error:
        tails = "\n".join(f"--- {bridge.get('/readyz')}\n{bridge.child.tail()}" for bridge in bridges)
        raise AssertionError(f"{error}\nlast records {wanted}\ncommitted {seen}\n{tails}") from None
    finally:
        asked.close()


def last_offsets(bootstrap: str, topic: str) -> dict[int, int]:
    """The offset of the last committed record of each partition that has one; transaction markers do not count."""
    found: dict[int, int] = {}
    for message in topics.read_all(bootstrap, topic):
        found[message.partition() or 0] = message.offset() or 0
    return found
