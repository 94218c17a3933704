"""Raw requests through both stages, as `run` and `translate` do it: the whole stream of AAEP events that comes out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

import orjson
from tests.samples import config

from acs_aaep_bridge.core.clock import StreamClock
from acs_aaep_bridge.core.identity import format_timestamp
from acs_aaep_bridge.core.lifecycle import LifecycleStage
from acs_aaep_bridge.core.model import Emit, Outcome, Record, Reject, Stage
from acs_aaep_bridge.core.schemas import shipped
from acs_aaep_bridge.core.stages import build_stage
from acs_aaep_bridge.core.table import SessionTable

EPOCH = 1_780_000_000_000
"""When the streams of the tests begin, in ms: 2026-05-28T20:26:40Z."""
FAR = 1 << 60


class Hook(NamedTuple):
    """One hook to be sent: `after` ms since the start of the stream, its record `late` ms after that."""

    method: str
    session: str
    payload: dict[str, Any]
    after: int
    request_id: str
    metadata: dict[str, Any] = {}  # noqa: RUF012
    tenant: str | None = None
    late: int = 0


def raw(hook: Hook) -> bytes:
    """The JSON-RPC request of `hook`."""
    params: dict[str, Any] = {
        "acs_version": "0.1.0",
        "request_id": hook.request_id,
        "timestamp": format_timestamp(EPOCH + hook.after),
        "metadata": {"agent_id": "planner", "session_id": hook.session, **hook.metadata},
        "payload": hook.payload,
    }
    if hook.tenant is not None:
        params["tenant_id"] = hook.tenant
    return orjson.dumps({"jsonrpc": "2.0", "id": "1", "method": f"steps/{hook.method}", "params": params})


@cache
def stages(overrides: tuple[tuple[str, str], ...]) -> tuple[Stage, LifecycleStage]:
    """Both stages; compiling their schemas takes longer than most tests."""
    settings = config(acs__final_chain_hash="optional", **dict(overrides))
    return build_stage("normalize", settings), LifecycleStage(settings, shipped())


class Bridge:
    """Both stages over one partition each, on stream time. Collects what is published and every outcome's notes."""

    def __init__(self, **overrides: str) -> None:
        self.normalize, self.lifecycle = stages(tuple(overrides.items()))
        self.table = self.new_table()
        self.clock = StreamClock()
        self.offset = 0
        self.published: list[bytes] = []
        self.notes: list[tuple[str, ...]] = []
        self.rejects: list[Reject] = []

    def new_table(self) -> SessionTable:
        table = self.lifecycle.new_state()
        assert isinstance(table, SessionTable)
        return table

    @property
    def events(self) -> list[dict[str, Any]]:
        return [orjson.loads(value) for value in self.published]

    def normalized(self, value: bytes, timestamp: int, offset: int | None = None, headers: Any = ()) -> Record:
        """The record that the normalize stage makes of a raw one at the next offset, or at a given one."""
        self.offset += 1
        source = Record("acs.events.raw", 0, self.offset if offset is None else offset, timestamp, None, value, headers)
        (outcome,) = self.normalize.apply(source, self.normalize.new_state(), timestamp)
        assert isinstance(outcome, Emit), outcome
        out = outcome.outgoing[0]
        return Record(out.topic, 0, self.offset, out.timestamp, out.key, out.value, out.headers)

    def feed(self, record: Record) -> Outcome:
        """Timers first, then the record, as the partition's worker does it."""
        now = self.clock.record(record.timestamp, FAR)
        self._publish(self.lifecycle.advance(self.table, now))
        (outcome,) = self.lifecycle.apply(record, self.table, now)
        if isinstance(outcome, Reject):
            self.rejects.append(outcome)
        else:
            assert isinstance(outcome, Emit)
            self._publish([outcome])
            self.notes.append(outcome.notes)
        self.table.commit()
        return outcome

    def send(self, hook: Hook, offset: int | None = None) -> Outcome:
        return self.feed(self.normalized(raw(hook), EPOCH + hook.after + hook.late, offset))

    def send_all(self, hooks: Iterable[Hook]) -> Bridge:
        for hook in hooks:
            self.send(hook)
        return self

    def wait(self, ms: int) -> tuple[Emit, ...]:
        """Time passes and nothing is read."""
        emits = self.lifecycle.advance(self.table, self.clock.caught_up(self.clock.now + ms))
        self._publish(emits)
        self.table.commit()
        return emits

    def settle(self) -> None:
        self._publish(self.lifecycle.settle(self.table, self.clock.now))
        self.table.commit()

    def _publish(self, emits: Sequence[Emit]) -> None:
        for emit in emits:
            for outgoing in emit.outgoing:
                assert outgoing.value is not None
                self.published.append(outgoing.value)


def spoken(events: Iterable[dict[str, Any]], quiet: bool = False) -> list[str]:
    """What a listener hears: one line per event that has words, critical ones marked; with `quiet` the background too."""
    lines = []
    for event in events:
        words = event.get("summary_normal") or event.get("chunk")
        if words and (quiet or event["urgency"] != "background"):
            lines.append(f"! {words}" if event["urgency"] == "critical" else words)
    return lines


def by_session(events: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The events of each AAEP session, in order."""
    sessions: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        sessions.setdefault(event["session_id"], []).append(event)
    return sessions
