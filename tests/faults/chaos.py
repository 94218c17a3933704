"""Bridges and brokers that die while traffic flows: a seeded list of faults, each awaited until the damage is mended."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from confluent_kafka import KafkaException

from tests import traffic
from tests.bridge import Bridge, Names, topics_for
from tests.brokers import topics
from tests.brokers.kafka import Kafka
from tests.brokers.process import until
from tests.brokers.publisher import Publisher
from tests.verdict import Delivery

PARTITIONS = 12
RATE = 300.0
POINTS: dict[Delivery, tuple[str, ...]] = {
    "exactly_once": ("transaction_open", "outputs_acked", "changelog_acked", "before_commit", "after_commit"),
    "at_least_once": ("outputs_acked", "changelog_acked"),
}
_KAFKA = {"session_timeout": "6s", "heartbeat_interval": "2s"}
_TRANSACTION = {"interval": "500ms"}
"""Rarer than by default: two dozen partitions at eight transactions a second each keep three brokers on one machine busy with
nothing else, and then every fault takes minutes to heal."""
_PATIENCE = 90.0


@dataclass
class Report:
    """What a run did and what it took, in seconds."""

    delivery: Delivery
    seed: int
    kafka: str
    faults: Counter[str] = field(default_factory=Counter)
    records: int = 0
    seconds: float = 0.0
    shutdowns: list[float] = field(default_factory=list)
    resumed: list[float] = field(default_factory=list)
    """From a broker's return until every partition had moved again."""
    doubled: dict[str, int] = field(default_factory=dict)


class Chaos:
    """Two bridges on three brokers. Every fault returns once both bridges work again."""

    def __init__(self, cluster: Kafka, folder: Path, delivery: Delivery, seed: int) -> None:
        self.names: Names = topics_for(cluster.bootstrap, f"chaos-{delivery}", PARTITIONS)
        self.report = Report(delivery, seed, cluster.version)
        self._cluster = cluster
        self._folder = folder
        self._delivery: Delivery = delivery
        self._chance = random.Random(seed)
        self._publisher = Publisher(cluster.bootstrap, self.names.raw, self._traffic(seed), RATE)
        watched = {"normalize": self.names.raw, "lifecycle": self.names.normalized}
        self._committed = {
            stage: topics.Committed(cluster.bootstrap, self.names.group(stage), topic, PARTITIONS)
            for stage, topic in watched.items()
        }
        self.bridges: list[Bridge] = []

    def _traffic(self, seed: int) -> Iterator[traffic.Sent]:
        """Without end: each thousand of records from a fleet of its own."""
        return (sent for part in count() for sent in traffic.mixed(seed * 1_000 + part, 1_000, poison=0.05))

    def __enter__(self) -> Chaos:
        self.bridges = [self._start(), self._start()]
        for bridge in self.bridges:
            bridge.wait_ready()
        self._publisher.start()
        self._all_move("traffic flows")
        return self

    def __exit__(self, *_: object) -> None:
        for bridge in self.bridges:
            bridge.kill()
        for node in self._cluster.nodes:
            if not node.running:
                self._cluster.restart(node)
        if self._publisher.running:
            self._publisher.stop()
        for watched in self._committed.values():
            watched.close()

    def run(self, faults: Sequence[str]) -> None:
        """All of these faults in an order that the seed decides."""
        started = time.monotonic()
        order = list(faults)
        self._chance.shuffle(order)
        for name in order:
            time.sleep(self._chance.uniform(0.2, 1.5))  # traffic between faults; its length is part of the seeded plan
            print(f"{time.monotonic() - started:6.1f} s  {self._publisher.sent:7,} records  {name}", flush=True)
            FAULTS[name](self)
            self.report.faults[name] += 1
            self._all_move(f"work goes on after {name}")
        self._publisher.stop()
        self.report.records = self._publisher.sent
        self.report.seconds = time.monotonic() - started

    def end(self) -> None:
        """SIGTERM to all of them: they end well."""
        for bridge in self.bridges:
            self._terminate(bridge)

    def kill(self) -> None:
        """SIGKILL a bridge, which is then started again."""
        number = self._some()
        self.bridges[number].kill()
        self._replace(number)

    def terminate(self) -> None:
        """SIGTERM a bridge, which drains and ends with 0, and is started again."""
        number = self._some()
        self._terminate(self.bridges[number])
        self._replace(number)

    def kill_at_a_failpoint(self) -> None:
        """A bridge dies at a named moment of a delivery."""
        number = self._some()
        self._terminate(self.bridges[number])
        point = self._chance.choice(POINTS[self._delivery])
        victim = self._replace(number, f"{point}:{self._chance.randrange(1, 40)}:kill")
        until(lambda: not victim.child.running(), _PATIENCE, f"the bridge dies at {point}")
        self._replace(number)

    def freeze_before_a_commit(self) -> None:
        """A bridge stands still with an open transaction; the group moves past it; it comes back and is fenced."""
        number = self._some()
        self._terminate(self.bridges[number])
        zombie = self._replace(number, f"before_commit:{self._chance.randrange(1, 20)}:freeze")
        until(lambda: _state(zombie.pid) == "T", _PATIENCE, "the bridge freezes before a commit")
        self._all_move("the group has moved past the frozen bridge")
        zombie.child.send(signal.SIGCONT)
        until(lambda: _fenced(zombie) or not zombie.child.running(), _PATIENCE, f"the zombie was fenced\n{zombie.child.tail()}")
        assert zombie.child.running(), zombie.child.tail()

    def kill_a_broker(self) -> None:
        """SIGKILL one of the three brokers, and start it again a few seconds later."""
        node = self._chance.choice(self._cluster.nodes)
        self._cluster.kill(node)
        time.sleep(self._chance.uniform(2.0, 6.0))  # how long it is down is part of the seeded plan
        self._cluster.restart(node)
        back = time.monotonic()
        self._all_move("work goes on after the broker's return")
        self.report.resumed.append(time.monotonic() - back)

    def terminate_in_a_rebalance(self) -> None:
        """A third bridge joins, and one of the two is told to end while the partitions are being moved."""
        number = self._some()
        third = self._start()
        until(lambda: '"bridge.started"' in third.child.output(), _PATIENCE, "a third bridge joins")
        self._terminate(self.bridges[number])
        self.bridges[number] = third

    def _some(self) -> int:
        return self._chance.randrange(len(self.bridges))

    def _start(self, fail_at: str | None = None) -> Bridge:
        settings = self.names.settings(delivery=self._delivery, kafka=_KAFKA, transaction=_TRANSACTION)
        env = {"FAIL_AT": fail_at} if fail_at else {}
        return Bridge(self._folder, settings, env=env, entry="tests.faults.victim")

    def _replace(self, number: int, fail_at: str | None = None) -> Bridge:
        self.bridges[number] = self._start(fail_at)
        return self.bridges[number]

    def _terminate(self, bridge: Bridge) -> None:
        began = time.monotonic()
        status = bridge.stop(timeout=25)
        self.report.shutdowns.append(time.monotonic() - began)
        assert status == 0, f"SIGTERM ended with {status}\n{bridge.child.tail()}"

    def _all_move(self, what: str) -> None:
        """Return when every partition of both stages has committed further than now."""
        for stage in ("normalize", "lifecycle"):
            self._moves(stage, what)

    def _moves(self, stage: str, what: str) -> None:
        seen: list[dict[int, int]] = []

        def moved() -> bool:
            try:
                seen.append(self._committed[stage].read())
            except KafkaException:  # the coordinator is moving: asked again
                return False
            before, now = seen[0], seen[-1]
            return len(now) == PARTITIONS and all(now[partition] > before.get(partition, -1) for partition in now)

        try:
            until(moved, _PATIENCE, f"{what} ({stage})", pause=0.2)
        except AssertionError as error:
            raise AssertionError(f"{error}\nfirst {seen[:1]}\nnow {seen[-1:]}\n{self._logs()}") from None

    def _logs(self) -> str:
        """The last of what each bridge says, without the dead letters, which are many here."""
        said = []
        for one in self.bridges:
            lines = [line for line in one.child.output().splitlines() if '"dead_letter.written"' not in line]
            said.append("\n".join([f"--- {one.child.log} {one.get('/readyz')}", *lines[-20:]]))
        return "\n".join(said)


def _state(pid: int) -> str:
    """The process state letter of Linux; `T` is stopped."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0]


def _fenced(bridge: Bridge) -> bool:
    outcomes = bridge.total("commits_total", "outcome")
    return bool(outcomes["failed",] + outcomes["lost",])


FAULTS: dict[str, Callable[[Chaos], None]] = {
    "SIGKILL of a bridge": Chaos.kill,
    "SIGKILL at a failpoint": Chaos.kill_at_a_failpoint,
    "SIGTERM": Chaos.terminate,
    "SIGTERM in a rebalance": Chaos.terminate_in_a_rebalance,
    "zombie with an open transaction": Chaos.freeze_before_a_commit,
    "SIGKILL of a broker": Chaos.kill_a_broker,
}
SHORT: dict[Delivery, dict[str, int]] = {
    "exactly_once": dict(zip(FAULTS, (3, 3, 1, 1, 1, 1), strict=True)),
    "at_least_once": dict(zip(FAULTS, (2, 2, 0, 1, 0, 0), strict=True)),
}
LONG: dict[Delivery, dict[str, int]] = {
    "exactly_once": dict(zip(FAULTS, (10, 10, 5, 5, 5, 3), strict=True)),
    "at_least_once": dict(zip(FAULTS, (10, 10, 5, 5, 0, 3), strict=True)),
}
"""How often each fault strikes. No zombies at least once: without transactions nothing fences them off the changelog."""
