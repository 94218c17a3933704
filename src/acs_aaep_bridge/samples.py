"""Traffic as real agent hosts send it: turns, parallel subagents, every outcome, and what goes wrong in practice.

Used by the demonstration, the compose file and the documentation. Deterministic: the same seed and clock give the same
records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from hashlib import sha256
from random import Random
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson

Json = dict[str, Any]
Clock = Callable[[], int]


class Sample(NamedTuple):
    """One raw record. `what` says in a few words what it stands for; `events` is how many events are in it."""

    what: str
    key: bytes | None
    value: bytes | None
    events: int = 1


class Host:
    """One session of an agent host. Makes the hooks; `clock` (milliseconds since the epoch) dates them."""

    def __init__(self, ids: Random, clock: Clock, agent: str, session: str | None = None) -> None:
        self._ids, self._clock, self.agent = ids, clock, agent
        self.session = session or self.uuid()
        self.turn: str | None = None

    def uuid(self) -> str:
        return str(UUID(int=self._ids.getrandbits(128), version=4))

    def child(self, name: str) -> Host:
        """The session of a subagent."""
        return Host(self._ids, self._clock, name)

    def hook(self, method: str, payload: Json) -> Json:
        """A JSON-RPC request for one step."""
        metadata = {"agent_id": self.agent, "agent_name": self.agent, "session_id": self.session, "platform": "sample-host"}
        metadata |= {"turn_id": self.turn} if self.turn else {}
        params = {
            "acs_version": "0.1.0",
            "request_id": self.uuid(),
            "timestamp": _written(self._clock()),
            "metadata": metadata,
            "payload": payload,
        }
        return {"jsonrpc": "2.0", "method": f"steps/{method}", "id": params["request_id"], "params": params}

    def step(self, what: str, method: str, payload: Json) -> Sample:
        """`hook` as a record, keyed like a real sender does it."""
        return self.record(f"{self.agent}: {what}", self.hook(method, payload))

    def record(self, what: str, value: object, events: int = 1) -> Sample:
        return Sample(what, self.session.encode(), orjson.dumps(value), events)

    def begin(self, text: str) -> Iterator[Sample]:
        """A turn opens with what the user asks."""
        self.turn = f"turn-{self._ids.getrandbits(32):08x}"
        yield self.step("turn starts", "turnStart", {"turn_id": self.turn, "triggered_by": "user_message"})
        yield self.step("user asks", "userMessage", {"content": [{"type": "text", "value": text}]})

    def end(self, outcome: str = "completed") -> Sample:
        return self.step(f"turn ends, {outcome}", "turnEnd", {"turn_id": self.turn, "outcome": outcome})

    def use(self, tool: str, status: str = "success", capability: str | None = None) -> Iterator[Sample]:
        """A tool call and its result."""
        payload: Json = {"tool": {"name": tool}, "arguments": {"path": {"value": "src/"}}}
        payload |= {"capability": capability} if capability else {}
        call = self.hook("toolCallRequest", payload)
        yield self.record(f"{self.agent}: calls {tool}", call)
        result = {
            "tool": {"name": tool},
            "exit_status": status,
            "outputs": [{"value": "ok"}],
            "request_id_ref": call["params"]["request_id"],
        }
        yield self.step(f"{tool}: {status}", "toolCallResult", result)

    def answer(self, text: str) -> Sample:
        return self.step("answers", "agentResponse", {"content": [{"type": "text", "value": text}]})

    def spawn(self, child: Host) -> Sample:
        descriptor = {"agent_id": child.agent, "agent_name": child.agent}
        payload = {"subagent_session_id": child.session, "parent_session_id": self.session, "subagent_descriptor": descriptor}
        return self.step(f"spawns {child.agent}", "subagentStart", payload)

    def stop(self, child: Host, outcome: str, text: str | None = None, steps: int | None = None) -> Sample:
        """The subagent's stop, sent on the parent's session."""
        return self.step(f"{child.agent} stops, {outcome}", "subagentStop", stop_payload(child.session, outcome, text, steps))


def stop_payload(session: str, outcome: str, text: str | None = None, steps: int | None = None) -> Json:
    """What a `subagentStop` carries in the revision with a hash chain."""
    payload: Json = {"subagent_session_id": session, "outcome": outcome, "final_chain_hash": sha256(session.encode()).hexdigest()}
    if text is not None:
        provenance = {"provenance_id": f"sum-{session[:8]}", "origin": "agent_generated"}
        payload["summary"] = {"value": text, "provenance": provenance}
    if steps is not None:
        payload["subagent_step_count"] = steps
    return payload


Scene = Callable[[Host], Iterator[Sample]]


def parallel_subagents(host: Host) -> Iterator[Sample]:
    """A turn that spawns two explorers; one finishes, one runs out of time."""
    yield from host.begin("Rename the payment service and fix its callers.")
    first, second = host.child("Explore"), host.child("Explore")
    yield host.spawn(first)
    yield host.spawn(second)
    for child in (first, second):
        yield from child.use("Grep")
    yield from first.use("Read")
    yield first.step("session ends", "sessionEnd", {"reason": "completed"})
    yield host.stop(first, "completed", "Found 3 call sites. Two of them are in tests.", 12)
    yield host.stop(second, "timeout")
    yield from host.use("Edit", capability="filesystem.write")
    yield host.answer("The service is renamed and its callers are fixed.")
    yield host.end()


def every_outcome(host: Host) -> Iterator[Sample]:
    """A turn whose subagents fail, are cancelled and are denied."""
    yield from host.begin("Plan a trip to Lisbon.")
    failing, cancelled, denied = host.child("Flights"), host.child("Hotels"), host.child("Payments")
    yield host.spawn(failing)
    yield host.spawn(cancelled)
    yield from failing.use("fetch", "timeout", "network.egress")
    yield host.stop(failing, "failed", "The airline's search did not answer.", 4)
    yield host.stop(cancelled, "cancelled", "Two hotels were compared so far.")
    yield host.spawn(denied)
    yield host.stop(denied, "denied_at_spawn")
    yield host.end("error")


def host_without_turns(host: Host) -> Iterator[Sample]:
    """A host that reports messages and tools, and no turns."""
    yield host.step("session starts", "sessionStart", {"policy_mode": "enforce"})
    yield host.step("user asks", "userMessage", {"content": [{"type": "text", "value": "Is the build green?"}]})
    yield from host.use("Bash", "failure", "process.execute")
    yield host.answer("Two tests fail.")
    yield host.step("session ends", "sessionEnd", {"session_reason": "completed"})


def orphans_and_repeats(host: Host) -> Iterator[Sample]:
    """A stop that nobody announced, sent twice; then a hook of a session that is over."""
    child = host.child("Lint")
    value = host.hook("subagentStop", stop_payload(child.session, "completed", "No problems found.", 3))
    yield host.record("Lint stops without a start", value)
    yield host.record("the same stop again", value)
    yield host.stop(child, "failed", "A second opinion, too late.")


def one_batch(host: Host) -> Iterator[Sample]:
    """A JSON-RPC batch: a turn in one record, one element of it wrong."""
    turn = host.uuid()
    host.turn = turn
    child = host.child("Review")
    spawn = {"subagent_session_id": child.session, "subagent_descriptor": {"agent_name": "Review"}}
    hooks = [
        host.hook("turnStart", {"turn_id": turn, "triggered_by": "auto_continuation"}),
        host.hook("subagentStart", spawn),
        host.hook("subagentStop", {**stop_payload(child.session, "completed"), "outcome": "vanished"}),
        host.hook("subagentStop", stop_payload(child.session, "completed", "The change looks good.", 7)),
        host.hook("turnEnd", {"turn_id": turn, "outcome": "completed"}),
    ]
    yield host.record(f"{host.agent}: a batch of {len(hooks)}, one of them wrong", hooks, len(hooks))


def not_events(host: Host) -> Iterator[Sample]:
    """What travels on such a topic and is no event."""
    yield host.record("a ping", {"jsonrpc": "2.0", "method": "system/ping", "id": 1, "params": {}})
    yield host.record("a JSON-RPC response", {"jsonrpc": "2.0", "id": 1, "result": {"decision": "allow"}})
    yield Sample("a tombstone", host.session.encode(), None)


def poison(host: Host) -> Iterator[Sample]:
    """What must be rejected, each for its own reason."""
    child = host.child("Explore")
    unhashed = stop_payload(child.session, "completed", "Done.")
    del unhashed["final_chain_hash"]
    yield host.step("a stop without its chain hash", "subagentStop", unhashed)
    wrong = host.hook("userMessage", {"content": [{"type": "text", "value": "hello"}]})
    wrong["params"]["metadata"]["session_id"] = "session-42"
    yield host.record("a session id that is no UUID", wrong)
    yield host.record("a method nobody knows", {**host.hook("sessionStart", {}), "method": "agents/hello"})
    future = host.hook("sessionStart", {})
    future["params"]["acs_version"] = "2.0.0"
    yield host.record("a version from the future", future)
    yield Sample("half a record", None, orjson.dumps(wrong)[:-40])
    yield Sample("bytes that are no text", None, b"\xff\xfe\x00\x01")


SCENES: Final[tuple[tuple[str, Scene], ...]] = (
    ("planner", parallel_subagents),
    ("builder", orphans_and_repeats),
    ("trip-planner", every_outcome),
    ("builder", not_events),
    ("ci-watcher", host_without_turns),
    ("reviewer", one_batch),
    ("builder", poison),
)


def rounds(seed: int, clock: Clock) -> Iterator[Iterator[Sample]]:
    """Endless rounds of traffic; in one round every scene occurs once, in sessions of its own.

    Scenes are made while they are iterated, so that `clock` dates each hook at its time.
    """
    ids = Random(seed)  # noqa: S311 - sample identifiers, not secrets
    while True:
        yield _one_round(ids, clock)


def _one_round(ids: Random, clock: Clock) -> Iterator[Sample]:
    for agent, scene in SCENES:
        yield from scene(Host(ids, clock, agent))


def _written(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
