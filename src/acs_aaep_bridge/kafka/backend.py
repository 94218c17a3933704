"""What a stage is put on: everything the runner needs of Kafka, from the configuration and what the start-up check found."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from aiokafka import TopicPartition

from acs_aaep_bridge.config import Config
from acs_aaep_bridge.core.model import StageName
from acs_aaep_bridge.kafka import topics
from acs_aaep_bridge.kafka.changelog import KafkaChangelog
from acs_aaep_bridge.kafka.client import Clients
from acs_aaep_bridge.kafka.observer import Observer
from acs_aaep_bridge.kafka.probe import KafkaProbe
from acs_aaep_bridge.kafka.sink import KafkaSink
from acs_aaep_bridge.kafka.source import KafkaSource
from acs_aaep_bridge.kafka.transactions import KafkaTransactor, transactional_id

_OPEN_TRANSACTION_MARGIN = 10.0  # seconds: brokers look for transactions that are overdue every ten


class KafkaBackend:
    """See `ports.Backend`."""

    def __init__(self, config: Config, clients: Clients, report: topics.Report, observer: Observer) -> None:
        self._config = config
        self._clients = clients
        self._report = report
        self._observer = observer

    def source(self, stage: StageName) -> KafkaSource:
        config = self._config
        pattern = config.input.pattern if stage == "normalize" else None
        names = config.input.topics if stage == "normalize" else (config.topics.normalized,)
        member = partial(self._clients.member, stage, config.group(stage))
        # Kafka's own topics begin with two underscores; a pattern such as `.*` does not mean them.
        return KafkaSource(member, names, None if pattern is None else f"(?!__)(?:{pattern})", config.kafka.max_partition_fetch)

    def sink(self, stage: StageName) -> KafkaSink:
        make = partial(self._clients.producer, stage)

        def failed(topic: str) -> None:
            if topic == self._config.topics.dead_letter:
                self._observer.dead_letter_failed(stage)

        return KafkaSink(make, self._outputs(stage), self._config.kafka.max_in_flight, self._observer, failed)

    def transactor(self, stage: StageName, partition: TopicPartition) -> KafkaTransactor:
        group = self._config.group(stage)
        name = f"{stage}-{partition.topic}-{partition.partition}"
        make = partial(self._clients.producer, name, transactional_id(group, partition))
        return KafkaTransactor(make, self._outputs(stage), group)

    def probe(self, stage: StageName) -> KafkaProbe:
        return self.probe_of(sorted(self.expected(stage)), f"{stage}-probe")

    def probe_of(self, names: Sequence[str], client: str = "probe") -> KafkaProbe:
        """A probe that watches these topics."""
        return KafkaProbe(self._clients.plain(client), names)

    def changelog(self, probe: KafkaProbe) -> KafkaChangelog:
        wait = self._config.kafka.transaction_timeout / 1000 + _OPEN_TRANSACTION_MARGIN
        client = partial(self._clients.plain, "lifecycle-restore")
        names = self._config.topics
        return KafkaChangelog(names.changelog, names.lifecycle, client, probe.client, wait)

    def expected(self, stage: StageName) -> dict[str, int]:
        inputs = set(self._config.input.topics) if stage == "normalize" else {self._config.topics.normalized}
        return {topic: self._report.topics[topic].partitions for topic in inputs | self._written(stage)}

    def _written(self, stage: StageName) -> set[str]:
        names = self._config.topics
        own = {names.normalized} if stage == "normalize" else {names.lifecycle, names.changelog}
        return own | {names.dead_letter}

    def _outputs(self, stage: StageName) -> topics.Report:
        return topics.Report({topic: self._report.topics[topic] for topic in self._written(stage)}, ())
