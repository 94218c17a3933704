"""Seeded ACS traffic: what a fleet of agents sends, and what its broken members send.

The same seed gives the same bytes. Every record says what becomes of it (`fate`), known by construction and not by
asking the bridge.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

EPOCH = datetime(2026, 5, 24, 9, 0, tzinfo=UTC)
OUTCOMES = ("completed", "failed", "cancelled", "timeout", "denied_at_spawn")
TURN_OUTCOMES = ("completed", "completed", "completed", "error", "interrupted", "deferred")
_HASH = "ab" * 32
_WORDS = ("found", "three", "call", "sites", "and", "changed", "two", "while", "the", "third", "waits", "for", "its", "tests")

Json = dict[str, Any]


class Sent(NamedTuple):
    """One raw record.

    `fate` says what the normalize stage makes of it, one entry per event: `emit`, `skip:<reason>` or `reject:<code>`.
    `later` is the code by which the lifecycle stage rejects what was emitted, if it does.
    """

    key: bytes | None
    value: bytes | None
    fate: tuple[str, ...] = ("emit",)
    headers: tuple[tuple[str, bytes | None], ...] = ()
    later: str | None = None


def encode(message: object) -> bytes:
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode()


class Clock:
    """Hook timestamps: each a little after the one before."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._now = EPOCH

    def tick(self) -> str:
        self._now += timedelta(milliseconds=self._chance.randrange(1, 40))
        return self._now.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def identifier(chance: random.Random) -> str:
    return str(uuid.UUID(int=chance.getrandbits(128), version=4))


def hook(chance: random.Random, clock: Clock, method: str, session: str, payload: Json, **metadata: Any) -> Json:
    """One valid JSON-RPC request."""
    return {
        "jsonrpc": "2.0",
        "method": f"steps/{method}",
        "id": f"rpc-{chance.getrandbits(32):08x}",
        "params": {
            "acs_version": "0.1.0",
            "request_id": identifier(chance),
            "timestamp": clock.tick(),
            "metadata": {"agent_id": "planner", "session_id": session, **metadata},
            "payload": payload,
        },
    }


def stop(chance: random.Random, clock: Clock, parent: str, child: str, outcome: str, **metadata: Any) -> Json:
    payload: Json = {"subagent_session_id": child, "outcome": outcome, "final_chain_hash": _HASH}
    if outcome != "denied_at_spawn":
        text = " ".join(chance.choices(_WORDS, k=12)).capitalize() + "."
        provenance = {"provenance_id": f"p-{chance.getrandbits(16)}", "origin": "agent_generated"}
        payload |= {"summary": {"value": text, "provenance": provenance}, "subagent_step_count": chance.randrange(40)}
    return hook(chance, clock, "subagentStop", parent, payload, **metadata)


class Host:
    """An agent with turns, tools and subagents, as an endless script of its hooks.

    With `calls_in_children`, subagents use tools: a stop that overtakes a result then waits, and timers decide. Without,
    what comes out is a function of the order of the input alone.
    """

    def __init__(self, chance: random.Random, clock: Clock, *, calls_in_children: bool) -> None:
        self._chance = chance
        self._clock = clock
        self._calls_in_children = calls_in_children
        self.session = identifier(chance)
        self._script = self._life()

    def next(self) -> Json:
        return next(self._script)

    def _hook(self, method: str, payload: Json, session: str | None = None, **metadata: Any) -> Json:
        return hook(self._chance, self._clock, method, session or self.session, payload, platform="claude-code", **metadata)

    def _life(self) -> Iterator[Json]:
        yield self._hook("sessionStart", {"policy_mode": "enforce"})
        for number in range(1 << 30):
            turn = f"turn-{number}"
            yield self._hook("turnStart", {"turn_id": turn, "triggered_by": "user_message"}, turn_id=turn)
            text = {"type": "text", "value": "Please look at the failing tests."}
            yield self._hook("userMessage", {"content": [text]}, turn_id=turn)
            for step in (self._tool, self._children, self._memory, self._compaction):
                if self._chance.random() < 0.6:
                    yield from step(turn)
            yield self._hook("agentResponse", {"content": [{"type": "text", "value": "The tests pass now."}]}, turn_id=turn)
            outcome = self._chance.choice(TURN_OUTCOMES)
            yield self._hook("turnEnd", {"turn_id": turn, "outcome": outcome, "step_count": 5}, turn_id=turn)

    def _tool(self, turn: str, session: str | None = None) -> Iterator[Json]:
        name = self._chance.choice(("Bash", "Edit", "Grep", "web search"))
        arguments = {"path": {"value": "src/app.py"}, "count": {"value": 3}}
        request = self._hook("toolCallRequest", {"tool": {"name": name}, "arguments": arguments}, session, turn_id=turn)
        yield request
        status = self._chance.choice(("success", "success", "failure", "timeout", "blocked"))
        answer: Json = {"tool": {"name": name}, "exit_status": status, "outputs": [{"value": "ok"}], "duration_ms": 120}
        answer["request_id_ref"] = request["params"]["request_id"]
        yield self._hook("toolCallResult", answer, session, turn_id=turn)

    def _children(self, turn: str) -> Iterator[Json]:
        children = [identifier(self._chance) for _ in range(self._chance.randrange(1, 4))]
        for child in children:
            descriptor = {"agent_id": "explorer", "agent_name": self._chance.choice(("Explore", "Review", "Test"))}
            start = {"subagent_session_id": child, "parent_session_id": self.session, "subagent_descriptor": descriptor}
            yield self._hook("subagentStart", start, turn_id=turn)
        for child in children:
            outcome = self._chance.choice(OUTCOMES)
            if outcome != "denied_at_spawn":
                yield self._hook("turnStart", {"turn_id": "t", "triggered_by": "agent_loop"}, child, turn_id="t")
                if self._calls_in_children:
                    yield from self._tool("t", child)
                yield self._hook("turnEnd", {"turn_id": "t", "outcome": "completed"}, child, turn_id="t")
            yield stop(self._chance, self._clock, self.session, child, outcome, turn_id=turn)

    def _memory(self, turn: str) -> Iterator[Json]:
        yield self._hook("knowledgeRetrieval", {"query": "tests", "results": [{"value": "a page"}]}, turn_id=turn)
        yield self._hook("memoryStore", {"entries": [{"value": "the tests were flaky"}]}, turn_id=turn)

    def _compaction(self, turn: str) -> Iterator[Json]:
        yield self._hook("preCompact", {"entries_to_compact": ["a", "b"]}, turn_id=turn)


def fleet(seed: int, count: int, *, hosts: int = 40, calls_in_children: bool = False) -> Iterator[Sent]:
    """`count` good records of many hosts at once, each keyed by its sender's session."""
    chance = random.Random(seed)
    clock = Clock(chance)
    members = [Host(chance, clock, calls_in_children=calls_in_children) for _ in range(hosts)]
    for _ in range(count):
        message = chance.choice(members).next()
        yield Sent(message["params"]["metadata"]["session_id"].encode(), encode(message))


def mixed(seed: int, count: int, *, poison: float = 0.08, hosts: int = 40, calls_in_children: bool = False) -> Iterator[Sent]:
    """`fleet` with a share of broken and odd records strewn in; every kind occurs if `count` is large enough."""
    chance = random.Random(seed ^ 0x5EED)
    clock = Clock(chance)
    good = fleet(seed, count, hosts=hosts, calls_in_children=calls_in_children)
    kinds = list(ODDITIES.values())
    turn = 0
    for sent in good:
        if chance.random() < poison:
            yield kinds[turn % len(kinds)](chance, clock)
            turn += 1
        else:
            yield sent


def standard_stops(seed: int, count: int, size: int = 600) -> Iterator[Sent]:
    """The record of the benchmarks: a `subagentStop` of `size` bytes with a summary of 60 characters."""
    chance = random.Random(seed)
    clock = Clock(chance)
    for _ in range(count):
        yield Sent(None, standard_stop(chance, clock, size))


def standard_stop(chance: random.Random, clock: Clock, size: int = 600) -> bytes:
    message = stop(chance, clock, identifier(chance), identifier(chance), "completed")
    payload = message["params"]["payload"]
    del payload["subagent_step_count"]
    text = "Found three call sites. Two were changed, one needs a review"
    payload["summary"] = {"value": text, "provenance": {"provenance_id": "p1", "origin": "agent_generated"}}
    message["id"] = ""
    message["id"] = "0" * (size - len(encode(message)))
    return encode(message)


def tenth_lifecycle(seed: int, count: int) -> Iterator[Sent]:
    """Nine of ten hooks are of the kinds that make no lifecycle event; the tenth is a standard stop."""
    chance = random.Random(seed)
    clock = Clock(chance)
    sessions = [identifier(chance) for _ in range(200)]
    for number in range(count):
        if number % 10 == 0:
            yield Sent(None, standard_stop(chance, clock))
            continue
        session = chance.choice(sessions)
        payload = {"query": "tests", "results": [{"value": "x" * 200}]}
        message = hook(chance, clock, "knowledgeRetrieval", session, payload, turn_id="turn-1", platform="claude-code")
        yield Sent(session.encode(), encode(message))


def _stop(chance: random.Random, clock: Clock) -> Json:
    return stop(chance, clock, identifier(chance), identifier(chance), "completed")


def _broken(change: Callable[[Json], object], code: str) -> Callable[[random.Random, Clock], Sent]:
    def make(chance: random.Random, clock: Clock) -> Sent:
        message = _stop(chance, clock)
        change(message)
        return Sent(None, encode(message), (f"reject:{code}",))

    return make


def _fixed(value: bytes | None, fate: str) -> Callable[[random.Random, Clock], Sent]:
    return lambda chance, clock: Sent(b"key-%d" % chance.randrange(100), value, (fate,))


def _batch(chance: random.Random, clock: Clock) -> Sent:
    bad = _stop(chance, clock)
    del bad["params"]["payload"]["outcome"]
    ping = {"jsonrpc": "2.0", "method": "system/ping", "id": 1}
    fates = ("emit", "reject:payload_invalid", "skip:ping", "emit", "reject:not_an_object")
    return Sent(None, encode([_stop(chance, clock), bad, ping, _stop(chance, clock), 7]), fates)


def _too_large(chance: random.Random, clock: Clock) -> Sent:
    message = _stop(chance, clock)
    message["params"]["payload"]["summary"]["value"] = "long " * 220_000
    return Sent(None, encode(message), ("reject:too_large",))


def _not_utf8(chance: random.Random, clock: Clock) -> Sent:
    return Sent(b"\xff\xfe", encode(_stop(chance, clock)).replace(b"planner", b"pl\xffnner"), ("reject:not_utf8",))


def _odd_headers(chance: random.Random, clock: Clock) -> Sent:
    headers = (("traceparent", b"\xff\x00"), ("same", b"1"), ("same", b"2"), ("none", None), ("", b"empty name"))
    return Sent(b"\xff\xfe", encode(_stop(chance, clock)), headers=headers)


def _self_parent(chance: random.Random, clock: Clock) -> Sent:
    session = identifier(chance)
    return Sent(None, encode(stop(chance, clock, session, session, "completed")), later="self_parent")


def _set(path: str, value: object) -> Callable[[Json], object]:
    *parents, last = path.split(".")

    def change(message: Json) -> None:
        node = message
        for parent in parents:
            node = node[parent]
        if value is None:
            del node[last]
        else:
            node[last] = value

    return change


ODDITIES: dict[str, Callable[[random.Random, Clock], Sent]] = {
    "null": _fixed(None, "skip:tombstone"),
    "response": _fixed(b'{"jsonrpc":"2.0","id":1,"result":{}}', "skip:response"),
    "ping": _fixed(b'{"jsonrpc":"2.0","method":"system/ping","id":1}', "skip:ping"),
    "handshake": _fixed(b'{"jsonrpc":"2.0","method":"handshake/hello","id":1}', "skip:handshake"),
    "empty": _fixed(b"", "reject:malformed_json"),
    "bad json": _fixed(b'{"jsonrpc":"2.0",', "reject:malformed_json"),
    "nan": _fixed(b'{"jsonrpc":NaN}', "reject:malformed_json"),
    "surrogate": _fixed(b'{"jsonrpc":"\\ud800"}', "reject:malformed_json"),
    "deep": _fixed(b"[" * 5_000 + b"]" * 5_000, "reject:too_deep"),
    "scalar": _fixed(b"42", "reject:not_an_object"),
    "empty batch": _fixed(b"[]", "reject:envelope_invalid"),
    "not utf-8": _not_utf8,
    "oversized": _too_large,
    "batch": _batch,
    "odd headers": _odd_headers,
    "self parent": _self_parent,
    "unknown method": _broken(_set("method", "system/reboot"), "unknown_method"),
    "unsupported version": _broken(_set("params.acs_version", "1.0.0"), "unsupported_version"),
    "no session": _broken(_set("params.metadata.session_id", None), "envelope_invalid"),
    "session not a uuid": _broken(_set("params.metadata.session_id", "session-7"), "envelope_invalid"),
    "no hash": _broken(_set("params.payload.final_chain_hash", None), "payload_invalid"),
    "unknown outcome": _broken(_set("params.payload.outcome", "exploded"), "payload_invalid"),
    "year zero": _broken(_set("params.timestamp", "0000-01-01T00:00:00Z"), "invalid_timestamp"),
    "bad date": _broken(_set("params.timestamp", "yesterday"), "envelope_invalid"),
}
