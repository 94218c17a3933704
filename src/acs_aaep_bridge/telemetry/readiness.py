"""Whether the process is ready, put together from what its stages report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

FRESH_SECONDS: Final = 30.0  # seconds; a stage reports at least every twenty


class Readiness:
    """Keeps each stage's latest report. A stage that has not reported, or not lately, is not ready.

    `clock` gives seconds that never go back.
    """

    def __init__(self, stages: Sequence[str], clock: Callable[[], float]) -> None:
        self._clock = clock
        self._reports: dict[str, tuple[float, tuple[str, ...]] | None] = dict.fromkeys(stages)

    def report(self, stage: str, reasons: Sequence[str]) -> None:
        """Take a stage's reasons for not being ready (none: it is)."""
        self._reports[stage] = (self._clock(), tuple(reasons))

    def reasons(self) -> list[str]:
        """`stage: reason` for everything that stands in the way; empty when the process is ready."""
        now, found = self._clock(), []
        for stage, report in self._reports.items():
            if report is None:
                found.append(f"{stage}: starting")
                continue
            at, reasons = report
            found += [f"{stage}: {reason}" for reason in reasons]
            if now - at > FRESH_SECONDS:
                found.append(f"{stage}: has not reported for {now - at:.0f} s")
        return found
