"""`make bench`: a table each for the core, the throughput and the latency, and one JSON file with all figures."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiokafka
from rich.console import Console
from rich.table import Table
from tests import traffic
from tests.bridge import Bridge, Names, running, topics_for
from tests.brokers import publisher, topics
from tests.brokers.kafka import Kafka
from tests.brokers.process import Child

from benchmarks import measure
from benchmarks.measure import Latency, Throughput

PARTITIONS = 6
LATENCY_RATE = 1_000
LATENCY_SECONDS = 20
_MIXES: dict[str, Callable[[int, int], Iterator[traffic.Sent]]] = {
    "600-byte stops": traffic.standard_stops,
    "10 % lifecycle hooks": traffic.tenth_lifecycle,
}


class Bench:
    """All cases on one broker, each on topics and in a group of its own, the input of a mix filled once."""

    def __init__(self, kafka: Kafka, home: Path, count: int, console: Console) -> None:
        self.kafka = kafka
        self.home = home
        self.count = count
        self.console = console
        self.results: list[dict[str, Any]] = []
        self.latencies: list[dict[str, Any]] = []

    def mix(self, name: str) -> None:
        """The copy first and last: if the two differ, the machine was busy with something else."""
        source = topics_for(self.kafka.bootstrap, "bench", PARTITIONS)
        publisher.publish(self.kafka.bootstrap, source.raw, list(_MIXES[name](1, self.count)))
        normalized = self._normalized(source)
        copied = self.copy(name, source)
        for delivery in ("at_least_once", "exactly_once"):
            self.stage(name, "normalize", delivery, self._onto(source, raw=source.raw), copied)
            self.stage(name, "lifecycle", delivery, self._onto(source, normalized=normalized), copied)
            self.stage(name, "whole", delivery, self._onto(source, raw=source.raw), copied)
        self.copy(name, source)

    def copy(self, mix: str, source: Names) -> Throughput:
        target = topics.unique("copy")
        topics.create(self.kafka.bootstrap, {target: PARTITIONS})
        command = [sys.executable, "-m", "benchmarks.copy", self.kafka.bootstrap, source.raw, target, target]
        child = Child(command, self.home / f"{target}.log", dict(os.environ))
        try:
            with measure.progress(self.kafka.bootstrap, target, source.raw) as done:
                found = measure.throughput(child, done, self.count)
        finally:
            child.kill()
        self._add(mix, "bare copy", "at_least_once", found, found)
        return found

    def stage(self, mix: str, stage: str, delivery: str, settings: tuple[Names, dict[str, Any]], copied: Throughput) -> None:
        names, tree = settings
        tree = {**tree, "delivery": delivery}
        arguments = () if stage == "whole" else ("--stage", stage)
        bridge = Bridge(self.home, tree, *arguments)
        try:
            if stage == "whole":  # all is done when the second stage has it; its input holds markers, so the metric tells
                consumed = "records_consumed_total"
                found = measure.throughput(bridge.child, lambda: bridge.total(consumed, "stage")["lifecycle",], self.count)
            else:
                topic = tree["input"]["topics"][0] if stage == "normalize" else tree["topics"]["normalized"]
                with measure.progress(self.kafka.bootstrap, names.group(stage), topic) as done:
                    found = measure.throughput(bridge.child, done, self.count)
        finally:
            bridge.kill()
        self._add(mix, stage, delivery, found, copied)

    def latency(self, delivery: str) -> None:
        names = topics_for(self.kafka.bootstrap, "latency", PARTITIONS)
        records = list(traffic.standard_stops(2, LATENCY_RATE * LATENCY_SECONDS))
        with running(self.home, names.settings(delivery=delivery)):
            found = measure.latency(self.kafka.bootstrap, names.raw, names.lifecycle, records, LATENCY_RATE)
        self._add_latency(delivery, found)

    def _onto(self, source: Names, **topic: str) -> tuple[Names, dict[str, Any]]:
        """Settings that read from `source` and write to topics of their own."""
        fresh = topics_for(self.kafka.bootstrap, "bench", PARTITIONS)
        tree = fresh.settings()
        if "raw" in topic:
            tree["input"] = {"topics": [topic["raw"]]}
        if "normalized" in topic:
            tree["topics"]["normalized"] = topic["normalized"]
        return fresh, tree

    def _normalized(self, source: Names) -> str:
        """The mix's normalized events, written without transactions so that offsets count records."""
        names, tree = self._onto(source, raw=source.raw)
        bridge = Bridge(self.home, {**tree, "delivery": "at_least_once"}, "--stage", "normalize")
        try:
            with measure.progress(self.kafka.bootstrap, names.group("normalize"), source.raw) as done:
                measure.throughput(bridge.child, done, self.count)
            bridge.stop()
        finally:
            bridge.kill()
        return names.normalized

    def _add(self, mix: str, case: str, delivery: str, found: Throughput, copied: Throughput) -> None:
        result = {
            "mix": mix,
            "case": case,
            "delivery": delivery,
            "records": found.records,
            "records_per_second": round(found.rate),
            "cpu_us_per_record": round(found.cpu_us, 2),
            "rate_to_copy": round(found.rate / copied.rate, 3),
            "cpu_to_copy": round(found.cpu_us / copied.cpu_us, 2),
        }
        self.results.append(result)
        self.console.print(f"{mix}, {case}, {delivery}: {found.rate:,.0f}/s, {found.cpu_us:.1f} µs")

    def _add_latency(self, delivery: str, found: Latency) -> None:
        row = {"delivery": delivery, "rate": LATENCY_RATE, "events": found.events}
        self.latencies.append(row | {"p50_ms": round(found.p50, 1), "p99_ms": round(found.p99, 1)})
        self.console.print(f"latency, {delivery}: p50 {found.p50:.0f} ms, p99 {found.p99:.0f} ms")


def core(console: Console) -> dict[str, list[dict[str, Any]]]:
    """CPU per event of the core alone, each measured in a process of its own."""
    found: dict[str, list[dict[str, Any]]] = {}
    table = Table(title="The core alone: CPU µs per 600-byte subagentStop")
    for column in ("step", "best", "mean"):
        table.add_column(column, justify="left" if column == "step" else "right")
    for module in ("core", "lifecycle_core"):
        program = f"import json; from benchmarks.{module} import figures; print(json.dumps([f._asdict() for f in figures()]))"
        done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True)
        found[module] = json.loads(done.stdout)
        for figure in found[module]:
            table.add_row(figure["name"], f"{figure['best']:.2f}", f"{figure['mean']:.2f}")
        table.add_section()
    console.print(table)
    return found


def tables(results: Sequence[dict[str, Any]], latencies: Sequence[dict[str, Any]]) -> list[Table]:
    table = Table(title="Throughput on one broker of this machine")
    for column in ("mix", "case", "delivery", "records/s", "CPU µs/record", "rate : copy", "CPU : copy"):
        table.add_column(column, justify="left" if column in {"mix", "case", "delivery"} else "right")
    for row in results:
        figures = (f"{row['records_per_second']:,}", row["cpu_us_per_record"], row["rate_to_copy"], row["cpu_to_copy"])
        table.add_row(row["mix"], row["case"], row["delivery"], *map(str, figures))
    late = Table(title=f"Input timestamp to read_committed output, {LATENCY_RATE:,} events/s, both stages")
    for column in ("delivery", "p50 ms", "p99 ms", "events"):
        late.add_column(column, justify="left" if column == "delivery" else "right")
    for row in latencies:
        late.add_row(row["delivery"], str(row["p50_ms"]), str(row["p99_ms"]), f"{row['events']:,}")
    return [table, late]


@contextmanager
def _broker(home: Path) -> Iterator[Kafka]:
    os.environ.setdefault("KAFKA_TEST_JVM", "-XX:+TieredCompilation")  # a broker that is measured against gets its optimizer
    kafka = Kafka(home / "kafka", heap="1g")
    try:
        kafka.start()
        yield kafka
    finally:
        kafka.stop()


def main() -> None:
    options = argparse.ArgumentParser(prog="make bench", description=__doc__)
    options.add_argument("--quick", action="store_true", help="a fifth of the records")
    options.add_argument("--json", type=Path, default=Path("build/bench.json"), help="where the figures go")
    chosen = options.parse_args()
    console = Console() if sys.stdout.isatty() else Console(width=120)
    report: dict[str, Any] = {
        "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "aiokafka": aiokafka.__version__},
    }
    report["core"] = core(console)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, _broker(Path(folder)) as kafka:
        report["machine"]["kafka"] = kafka.version
        bench = Bench(kafka, Path(folder), 20_000 if chosen.quick else 100_000, console)
        for mix in _MIXES:
            bench.mix(mix)
        for delivery in ("at_least_once", "exactly_once"):
            bench.latency(delivery)
        report |= {"throughput": bench.results, "latency": bench.latencies}
    for table in tables(bench.results, bench.latencies):
        console.print(table)
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    chosen.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    console.print(f"figures: {chosen.json}")


if __name__ == "__main__":
    main()
