"""The account at the end of the demonstration: everything that went in is somewhere, by the bridge's own metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry

from acs_aaep_bridge.core.model import StageName
from acs_aaep_bridge.telemetry.metrics import PREFIX

RESULTS: Final = ("emitted", "absorbed", "skipped", "rejected")


class Account(NamedTuple):
    """`published` is counted where it was sent; the rest is what the metrics say."""

    published: int
    stages: Mapping[StageName, Counter[str]]
    lifecycle: Counter[str]
    dead_letters: Counter[str]

    def settled(self) -> bool:
        """Whether every event that was published is accounted for in both stages."""
        normalize, lifecycle = self.stages["normalize"], self.stages["lifecycle"]
        return normalize.total() == self.published and lifecycle.total() == normalize["emitted"]

    def lines(self) -> Iterator[str]:
        """The account in words."""
        yield f"published      {self.published} events"
        for stage, results in self.stages.items():
            parts = " + ".join(f"{results[result]} {result}" for result in RESULTS)
            yield f"{stage:10}     {results.total()} in = {parts}"
        yield f"AAEP events    {self.lifecycle.total()}: {_listed(self.lifecycle)}"
        yield f"dead letters   {self.dead_letters.total()}: {_listed(self.dead_letters)}"
        yield "Everything is accounted for." if self.settled() else "THIS DOES NOT ADD UP: please report it."


def account(published: int, registry: CollectorRegistry) -> Account:
    """What the metrics in `registry` say of `published` events."""
    normalize: Counter[str] = Counter()
    later: Counter[str] = Counter()
    lifecycle: Counter[str] = Counter()
    dead_letters: Counter[str] = Counter()
    for metric in registry.collect():
        for sample in metric.samples:
            count = int(sample.value) if sample.name.endswith("_total") else 0
            if not count:
                continue
            match sample.name.removeprefix(PREFIX):
                case "events_total":
                    (normalize if sample.labels["stage"] == "normalize" else later)[sample.labels["result"]] += count
                case "lifecycle_events_total":
                    lifecycle[sample.labels["type"]] += count
                case "dead_letters_total":
                    dead_letters[sample.labels["code"]] += count
    return Account(published, {"normalize": normalize, "lifecycle": later}, lifecycle, dead_letters)


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{number} {name.removeprefix('aaep:')}" for name, number in counts.most_common()) or "none"
