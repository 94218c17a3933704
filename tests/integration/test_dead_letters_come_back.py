"""The worked example of docs/delivery.md, on real Kafka: rejected for one option, repaired, replayed."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from acs_aaep_bridge.cli import main
from tests.bridge import Names, caught_up, running, topics_for
from tests.brokers import topics
from tests.brokers.kafka import Kafka

COUNT = 600
pytestmark = pytest.mark.timeout(240)


def stop(number: int) -> tuple[bytes, bytes]:
    """A subagent's stop from a host that keeps no hash chain."""
    child, parent = (f"{kind:08x}-0000-4000-8000-{number:012x}" for kind in (1, 2))
    params = {
        "acs_version": "0.1.0",
        "request_id": f"00000003-0000-4000-8000-{number:012x}",
        "timestamp": "2026-05-24T14:22:38.921Z",
        "metadata": {"agent_id": "planner", "session_id": parent},
        "payload": {"subagent_session_id": child, "outcome": "completed"},
    }
    return parent.encode(), json.dumps(
        {"jsonrpc": "2.0", "method": "steps/subagentStop", "id": number, "params": params}
    ).encode()


def dlq(names: Names, folder: Path, *arguments: str) -> Result:
    config = folder / "bridge.yaml"
    config.write_text(json.dumps(names.settings()), encoding="utf-8")
    result = CliRunner().invoke(main, ["dlq", *arguments, "--config", str(config)])
    assert result.exit_code == 0, result.output
    return result


def test_stops_without_a_hash_are_rejected_then_repaired_and_replayed(kafka: Kafka, tmp_path: Path) -> None:
    """Each stop is announced exactly once in the end, and a second replay announces nothing twice."""
    names = topics_for(kafka.bootstrap, "hashless", 3)
    brake: dict[str, Any] = {"dead_letter": {"max_consecutive": 0, "max_ratio": 0}}
    records = [stop(number) for number in range(COUNT)]
    with running(tmp_path, names.settings(**brake)) as bridge:
        topics.fill(kafka.bootstrap, names.raw, records)
        caught_up(names, bridge)
        assert bridge.stop() == 0
    assert topics.read_all(kafka.bootstrap, names.normalized) == []

    rows = [line.split() for line in dlq(names, tmp_path, "inspect").stdout.splitlines()]
    assert rows[1:] == [[str(COUNT), "payload_invalid", "steps/subagentStop", "/params/payload/final_chain_hash"]]
    shown = dlq(names, tmp_path, "show", "--json", "--max", "1000").stdout
    explained = CliRunner().invoke(main, ["explain", "--records", "--set", "acs.final_chain_hash=optional"], input=shown).stdout
    assert [json.loads(line)["outcome"] for line in explained.splitlines()] == ["emit"] * COUNT

    repaired = names.settings(**brake, acs={"final_chain_hash": "optional"})
    with running(tmp_path, repaired) as bridge:
        assert dlq(names, tmp_path, "replay", "--dry-run").stderr == f"would send {COUNT} to {names.raw}\n"
        for _ in range(2):
            assert dlq(names, tmp_path, "replay").stderr == f"sent {COUNT} to {names.raw}\n"
            caught_up(names, bridge)
        assert bridge.total("sessions_events_total", "kind")["duplicate",] == COUNT
        assert bridge.stop() == 0
    heard = Counter(json.loads(message.value() or b"")["type"] for message in topics.read_all(kafka.bootstrap, names.lifecycle))
    assert heard == {"aaep:agent.session.started": COUNT, "aaep:agent.session.completed": COUNT}
