"""What a run of faults did and took: printed, and with `--long` put into docs/delivery.md."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import aiokafka

from tests.faults.chaos import RATE, Report

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "delivery.md"


def write(report: Report, *, into_docs: bool) -> None:
    """Print the report; `into_docs` replaces what stands between this delivery's marks on the page."""
    text = render(report)
    print(f"\n{text}")
    if into_docs:
        begin, end = (f"<!-- {mark} {report.delivery} -->" for mark in ("begin", "end"))
        page = _PAGE.read_text(encoding="utf-8")
        before, rest = page.split(begin)
        _, after = rest.split(end)
        _PAGE.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


def render(report: Report) -> str:
    rows = [
        ("Kafka", f"{report.kafka}, three nodes"),
        ("Python, aiokafka", f"{platform.python_version()}, {aiokafka.__version__}"),
    ]
    rows += [("machine", f"{os.cpu_count()} cores, everything on it"), ("seed", str(report.seed))]
    rows += [("records", f"{report.records:,} in {report.seconds:.0f} s, paced at {RATE:.0f}/s")]
    rows += [(name, str(times)) for name, times in sorted(report.faults.items())]
    rows += [("SIGTERM to exit", _spread(report.shutdowns))]
    if report.resumed:
        rows += [("broker back to every partition moving", _spread(report.resumed))]
    doubled = ", ".join(f"{topic} {number}" for topic, number in report.doubled.items())
    rows += [("missing", "none"), ("repeats", doubled)]
    lines = ["| what | seen |", "|---|---|", *(f"| {name} | {seen} |" for name, seen in rows)]
    return "\n".join(lines)


def _spread(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    return f"median {ordered[len(ordered) // 2]:.1f} s, longest {ordered[-1]:.1f} s" if ordered else "-"
