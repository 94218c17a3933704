"""A place to break things in: one broker, topics with one or a few partitions, and bridges that are told to fail."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests import oracle, traffic
from tests.bridge import Bridge, Names, last_offsets, running, topics_for
from tests.brokers import publisher, topics
from tests.brokers.process import until
from tests.verdict import Doubled, Lost

FAST: dict[str, Any] = {"session_timeout": "3s", "heartbeat_interval": "1s"}


class Lab:
    """Starts bridges of one stage with faults in them, and ends them all. `mutant` goes into every one."""

    def __init__(self, bootstrap: str, folder: Path, mutant: str | None, partitions: int = 1) -> None:
        self.names: Names = topics_for(bootstrap, "lab", partitions)
        self.folder = folder
        self._mutant = mutant
        self._bridges: list[Bridge] = []
        self._sent = 0

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        for bridge in self._bridges:
            bridge.kill()

    def start(
        self,
        stage: str,
        delivery: str = "exactly_once",
        *,
        fail_at: str | None = None,
        slow_fence: bool = False,
        kafka: dict[str, Any] | None = None,
        env: dict[str, str] | None = None,
    ) -> Bridge:
        """A bridge of one stage, ready or on its way there (`slow_fence`: it waits before it fences, until `let_fence`)."""
        settings = self.names.settings(
            delivery=delivery,
            kafka={**FAST, **(kafka or {})},
            dead_letter={"max_consecutive": 0, "max_ratio": 0},
        )
        orders = dict(env or {})
        orders |= {"FAIL_AT": fail_at, "FAIL_FILE": str(self.folder / "hold")} if fail_at else {}
        orders |= {"MUTANT": self._mutant} if self._mutant else {}
        orders |= {"FENCE_FILE": str(self.folder / "fence")} if slow_fence else {}
        bridge = Bridge(self.folder, settings, "--stage", stage, env=orders, entry="tests.faults.victim")
        self._bridges.append(bridge)
        return bridge

    def publish(self, count: int) -> None:
        """Good records from where the last call stopped."""
        records = list(traffic.fleet(11, self._sent + count, hosts=8))[self._sent :]
        self._sent += count
        publisher.publish(self.names.bootstrap, self.names.raw, records)

    def normalize_all(self) -> None:
        """Fill the normalized topic by a bridge without any fault."""
        with running(self.folder, self.names.settings(), "--stage", "normalize") as bridge:
            self.consumed("normalize")
            bridge.stop()

    def committed(self, stage: str) -> int:
        """The sum of the group's committed offsets."""
        topic = self.names.raw if stage == "normalize" else self.names.normalized
        count = topics.count(self.names.bootstrap, topic)
        return sum(topics.committed(self.names.bootstrap, self.names.group(stage), topic, count).values())

    def consumed(self, stage: str, timeout: float = 30.0) -> None:
        """Return when the group has committed past the last record of its input."""
        topic = self.names.raw if stage == "normalize" else self.names.normalized
        last = last_offsets(self.names.bootstrap, topic)
        group = self.names.group(stage)

        def done() -> bool:
            seen = topics.committed(self.names.bootstrap, group, topic, max(last) + 1)
            return all(seen.get(partition, 0) > offset for partition, offset in last.items())

        self.wait(done, timeout, f"{stage} has consumed {topic}")

    def wait(self, condition: Any, timeout: float, what: str) -> None:
        """`until`, with the tails of all logs when it fails."""
        try:
            until(condition, timeout, what, pause=0.1)
        except AssertionError as error:
            tails = "\n".join(f"--- {bridge.child.log.name}\n{bridge.child.tail(15)}" for bridge in self._bridges)
            raise AssertionError(f"{error}\n{tails}") from None

    def frozen(self, bridge: Bridge) -> None:
        """Return when the process has stopped itself."""
        process = psutil.Process(bridge.pid)
        self.wait(lambda: process.status() == psutil.STATUS_STOPPED, 30, "the bridge froze at its failpoint")

    def thaw(self, bridge: Bridge) -> None:
        bridge.child.send(signal.SIGCONT)

    def died(self, bridge: Bridge) -> None:
        """Return when the process has killed itself."""
        self.wait(lambda: not bridge.child.running(), 30, "the bridge died at its failpoint")
        assert bridge.child.process.returncode == -signal.SIGKILL

    def reached(self, file: str, kind: str) -> None:
        """Return when `<file>.<kind>` was made by a bridge."""
        self.wait((self.folder / file).with_suffix(f".{kind}").exists, 30, f"{file}.{kind}")

    def go(self, file: str) -> None:
        (self.folder / file).with_suffix(".go").touch()

    def logged(self, bridge: Bridge, event: str) -> bool:
        return f'"event":"{event}"' in bridge.child.output()

    def alter(self, topic: str, name: str, value: str) -> None:
        """Change a topic's setting, and return when the broker says it holds."""
        admin = AdminClient({"bootstrap.servers": self.names.bootstrap, "log_level": 0})
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for done in admin.incremental_alter_configs(
            [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])]
        ).values():
            done.result(timeout=20)

        def holds() -> bool:
            resource = ConfigResource(ResourceType.TOPIC, topic)
            (found,) = admin.describe_configs([resource]).values()
            return bool(found.result(timeout=20)[name].value == value)

        self.wait(holds, 20, f"{topic} has {name}={value}")

    def check_each_raw_record_once(self) -> None:
        """Every raw record is on the normalized topic or among the dead letters, once."""
        ended: Counter[tuple[int, int]] = Counter()
        for message in topics.read_all(self.names.bootstrap, self.names.normalized):
            source = json.loads(message.value() or b"")["source"]
            ended[source["partition"], source["offset"]] += 1
        for message in topics.read_all(self.names.bootstrap, self.names.dead_letter):
            headers = dict(oracle.as_record(message).headers)
            partition, offset = (int(headers[f"bridge.error.{name}"] or b"") for name in ("partition", "offset"))
            ended[partition, offset] += 1
        raw = topics.read_all(self.names.bootstrap, self.names.raw)
        keys: Sequence[tuple[int, int]] = [(one.partition() or 0, one.offset() or 0) for one in raw]
        lost = [key for key in keys if not ended[key]]
        if lost:
            raise Lost(f"{len(lost)} of {len(keys)} raw records came to nothing, the first at {lost[0]}")
        doubled = [key for key, count in ended.items() if count > 1]
        if doubled:
            raise Doubled(f"{len(doubled)} raw records ended twice, the first at {doubled[0]}")
        assert set(ended) == set(keys)


def pause_until(moment: float) -> None:
    """Sleep until a monotonic moment of a schedule."""
    time.sleep(max(0.0, moment - time.monotonic()))
