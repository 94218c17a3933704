"""`translate` and `explain`: the production code path over recorded hooks, and odd input of every kind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.core.hooks_sent import CHILD, SESSION, request, subagent_stop

from acs_aaep_bridge.cli import main

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent / "golden"
EXAMPLE = ROOT / "examples" / "agents.jsonl"
START = "2026-05-24T14:22:38.921Z"
START_MS = 1_779_632_558_921


def run(command: str, lines: list[Any], *arguments: str) -> Result:
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    return CliRunner().invoke(main, [command, *arguments], input=text)


def explain(lines: list[Any], *arguments: str) -> list[dict[str, Any]]:
    result = run("explain", lines, *arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    return [json.loads(line) for line in result.stdout.splitlines()]


def identified(hook: dict[str, Any], number: int, **metadata: Any) -> dict[str, Any]:
    """The hook as another one than its like: with a request id of its own."""
    params = {**hook["params"], "request_id": f"00000000-0000-4000-8000-{number:012d}"}
    return {**hook, "params": {**params, "metadata": {**params["metadata"], **metadata}}}


def at(milliseconds: int, hook: dict[str, Any]) -> dict[str, Any]:
    """The `--records` form of a hook, at so many milliseconds after the start."""
    return {"value": json.dumps(hook), "timestamp": START_MS + milliseconds}


def types(told: dict[str, Any]) -> list[str]:
    return [event["type"].removeprefix("aaep:agent.") for event in told["lifecycle"]]


START_OF_CHILD = request("steps/subagentStart", {"subagent_session_id": CHILD})
CHILD_CALLS = request(
    "steps/toolCallRequest",
    {"tool": {"name": "Grep"}, "arguments": {}},
    metadata={"agent_id": "explorer", "session_id": CHILD},
)
CHILDS_END = request("steps/sessionEnd", {"reason": "completed"}, metadata={"agent_id": "explorer", "session_id": CHILD})


@pytest.mark.parametrize("command", ["translate", "explain"])
def test_the_example_gives_what_it_gave(command: str) -> None:
    """Standard output and error for `examples/agents.jsonl`, byte for byte."""
    result = CliRunner().invoke(main, [command, str(EXAMPLE)])
    assert result.exit_code == (1 if command == "translate" else 0)
    for stream, text in (("out", result.stdout), ("err", result.stderr)):
        path = GOLDEN / f"agents.{command}.{stream}.jsonl"
        if not text:
            assert not path.exists()
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            pytest.fail(f"{path.name} was not up to date; it is now, look at the difference")


def test_translate_gives_the_events_that_explain_names() -> None:
    translated = CliRunner().invoke(main, ["translate", str(EXAMPLE)]).stdout.splitlines()
    explained = [json.loads(line) for line in CliRunner().invoke(main, ["explain", str(EXAMPLE)]).stdout.splitlines()]
    flat = [one for told in explained for one in told.get("results", [told])]
    assert [event for told in flat for event in told.get("lifecycle", [])] == [json.loads(line) for line in translated]


def test_an_accepted_hook() -> None:
    (told,) = explain([subagent_stop()])
    assert (told["outcome"], set(told)) == ("emit", {"outcome", "normalized", "lifecycle"})
    assert [event["method"] for event in told["normalized"]] == ["steps/subagentStop"]
    assert types(told) == ["session.started", "session.completed"]


def test_a_hook_that_says_nothing_is_normalized() -> None:
    (told,) = explain([request("steps/sessionStart")])
    assert (told["outcome"], len(told["normalized"]), told["lifecycle"]) == ("emit", 1, [])


def test_what_is_no_event_is_skipped_with_its_reason() -> None:
    told = explain([{"value": None}, {"value": '{"jsonrpc":"2.0","id":1,"result":{}}'}], "--records")
    assert told == [{"outcome": "skip", "reason": "tombstone"}, {"outcome": "skip", "reason": "response"}]


def test_a_rejected_record_is_told_with_its_place() -> None:
    (told,) = explain([subagent_stop(outcome="vanished")])
    assert set(told) == {"outcome", "stage", "code", "pointer", "message", "line"}
    assert (told["outcome"], told["stage"], told["code"]) == ("reject", "normalize", "payload_invalid")
    assert told["pointer"] == "/params/payload/outcome"


def test_several_faults_have_several_pointers() -> None:
    (told,) = explain([subagent_stop(outcome="vanished", final_chain_hash="?")])
    assert set(told["pointers"]) == {"/params/payload/outcome", "/params/payload/final_chain_hash"}
    assert told["pointer"] == told["pointers"][0]


def test_what_the_lifecycle_stage_rejects_is_told_with_the_normalized_event() -> None:
    (told,) = explain([subagent_stop(subagent_session_id=SESSION)])
    assert (told["outcome"], told["stage"], told["code"]) == ("reject", "lifecycle", "self_parent")
    assert [event["subject_session_id"] for event in told["normalized"]] == [SESSION]


@pytest.mark.parametrize("count", [1, 3])
def test_a_batch_is_one_line_with_a_verdict_for_each_element(count: int) -> None:
    hooks = [identified(request("steps/sessionStart"), number) for number in range(count - 1)]
    (told,) = explain([[*hooks, subagent_stop(outcome="vanished")]])
    assert told["outcome"] == "batch"
    assert [one["outcome"] for one in told["results"]] == ["emit"] * (count - 1) + ["reject"]


def test_a_batch_that_is_refused_as_a_whole_is_a_rejected_record() -> None:
    assert [told["outcome"] for told in explain([[], "[[]", "[1]"])] == ["reject", "reject", "batch"]


def test_a_repeated_hook_is_noted() -> None:
    stop = subagent_stop()
    told = explain([START_OF_CHILD, identified(stop, 1), identified(stop, 1), identified(stop, 2)])
    assert [one.get("notes") for one in told] == [None, None, ["duplicate"], ["duplicate"]]
    assert told[2]["lifecycle"] == []


def test_what_is_held_is_settled_at_the_end_of_the_input() -> None:
    told = explain([START_OF_CHILD, identified(CHILD_CALLS, 1), identified(subagent_stop(), 2)])
    assert told[2]["notes"] == ["held"]
    assert told[2]["lifecycle"] == []
    assert told[3]["outcome"] == "end_of_input"
    assert types(told[3])[-1] == "session.completed"
    assert len(told) == 4


def test_what_is_due_comes_before_the_record() -> None:
    hooks = [at(0, START_OF_CHILD), at(10, identified(CHILD_CALLS, 1)), at(20, identified(subagent_stop(), 2))]
    early = explain([*hooks, at(5_019, request("steps/sessionStart"))], "--records")
    assert [told["outcome"] for told in early] == ["emit"] * 4 + ["end_of_input"]
    told = explain([*hooks, at(5_020, request("steps/sessionStart"))], "--records")
    assert [one["outcome"] for one in told] == ["emit"] * 3 + ["timer", "emit"]
    assert types(told[3])[-1] == "session.completed"


def test_without_timestamps_only_order_counts() -> None:
    """Hooks that are days apart by their own clocks are neighbours."""
    late = {**subagent_stop(), "params": {**subagent_stop()["params"], "timestamp": "2026-05-29T14:22:38Z"}}
    told = explain([START_OF_CHILD, identified(CHILD_CALLS, 1), identified(late, 2)])
    assert [one["outcome"] for one in told] == ["emit", "emit", "emit", "end_of_input"]
    assert types(told[3])[-1] == "session.completed"


def test_silence_ends_nothing_unless_time_is_told_to_pass() -> None:
    assert len(explain([START_OF_CHILD])) == 1
    before, after = "2026-05-24T14:52:38.920Z", "2026-05-24T14:52:38.921Z"  # half an hour after the hook, which has no timestamp
    assert len(explain([START_OF_CHILD], "--until", before)) == 1
    told = explain([START_OF_CHILD], "--until", after)
    assert [one["outcome"] for one in told] == ["emit", "timer"]
    assert types(told[1]) == ["session.cancelled"]
    assert told[1]["lifecycle"][0]["timestamp"] == after
    timed = explain([at(1_000, START_OF_CHILD)], "--records", "--until", str(START_MS + 1_801_000))
    assert [one["outcome"] for one in timed] == ["emit", "timer"]


def test_time_cannot_be_told_to_go_back() -> None:
    result = run("explain", [START_OF_CHILD], "--until", "2026-05-24T14:22:00Z")
    assert result.exit_code == 2
    assert result.stderr == (
        f"error: --until 2026-05-24T14:22:00.000Z lies before the last record, of {START}: write that time or a later one\n"
    )
    far = run("explain", [{"value": None, "timestamp": 1 << 62}], "--records", "--until", "1")
    assert "--until 1970-01-01T00:00:00.001Z lies before the last record, of 9999-12-31T23:59:59.999Z" in far.stderr


def test_what_cannot_be_parsed_is_told_with_its_line() -> None:
    """As an editor counts them, blank lines too; a batch is told with its own, whatever becomes of its elements."""
    told = explain([START_OF_CHILD, "", "{bad", [1, identified(START_OF_CHILD, 2)], START_OF_CHILD])
    assert [(one["outcome"], one.get("line")) for one in told] == [("emit", None), ("reject", 3), ("batch", 4), ("emit", None)]


def test_the_configuration_applies() -> None:
    hashless = subagent_stop()
    del hashless["params"]["payload"]["final_chain_hash"]
    assert explain([hashless])[0]["outcome"] == "reject"
    assert explain([hashless], "--set", "acs.final_chain_hash=optional")[0]["outcome"] == "emit"
    assert run("translate", [hashless], "--set", "acs.final_chain_hash=optional").exit_code == 0


def test_the_normalized_event_is_shown_as_json_also_where_avro_is_published() -> None:
    options = ["--set", "normalized.format=avro", "--set", "schema_registry.url=http://127.0.0.1:1"]
    assert explain([subagent_stop()], *options) == explain([subagent_stop()])


def test_numbers_are_shown_as_they_are_published() -> None:
    """Beyond the whole numbers that a double can hold, too."""
    (told,) = explain([request("steps/sessionStart", {"count": 2**53 + 1})])
    assert told["normalized"][0]["payload"] == {"count": 2**53 + 1}


def test_a_record_of_its_own_form_keeps_key_headers_and_position() -> None:
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    record = {**at(0, subagent_stop()), "topic": "raw", "partition": 3, "offset": 77, "headers": {"traceparent": trace}}
    (told,) = explain([record], "--records")
    assert told["normalized"][0]["source"] == {"topic": "raw", "partition": 3, "offset": 77, "timestamp": START_MS, "index": 0}
    assert told["lifecycle"][0]["correlation_id"] == trace


def test_a_wrong_record_form_is_one_line_naming_the_line() -> None:
    result = run("explain", [at(0, START_OF_CHILD), {"nothing": 1}], "--records")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: line 2: value ")
    assert len(result.stdout.splitlines()) == 1


def test_translate_writes_events_and_rejects_apart() -> None:
    result = run("translate", [subagent_stop(), "nonsense", "", [subagent_stop(outcome="?")]])
    assert result.exit_code == 1
    assert [json.loads(line)["type"] for line in result.stdout.splitlines()] == [
        "aaep:agent.session.started",
        "aaep:agent.session.completed",
    ]
    rejects = [json.loads(line) for line in result.stderr.splitlines()]
    assert [(told["code"], told["line"]) for told in rejects] == [("malformed_json", 2), ("payload_invalid", 4)]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("many", [False, True])
def test_a_json_file_may_be_one_object_or_one_array(tmp_path: Path, indent: int | None, many: bool) -> None:
    value: Any = [START_OF_CHILD, identified(subagent_stop(), 2)] if many else subagent_stop()
    path = tmp_path / "hooks.json"
    path.write_text(json.dumps(value, indent=indent), encoding="utf-8")
    result = CliRunner().invoke(main, ["translate", str(path)])
    assert (result.exit_code, result.stderr) == (0, "")
    assert len(result.stdout.splitlines()) == 2


ODD = {
    "five megabytes": (json.dumps(request("steps/sessionStart", {"text": "x" * 5_000_000})).encode(), "too_large"),
    "nested brackets": (b"[" * 100_000, "too_deep"),
    "nested brackets, closed": (b"[" * 100_000 + b"]" * 100_000, "too_deep"),
    "nested objects": (b'{"a":' * 100_000, "too_deep"),
    "null": (b"null", "not_an_object"),
    "a number": (b"1", "not_an_object"),
    "not UTF-8": (b'{"a":"\xff"}', "not_utf8"),
    "a byte order mark": (b"\xef\xbb\xbf{}", "malformed_json"),
    "a zero byte": (b"\x00", "unsupported_format"),
    "half an object": (b'{"jsonrpc"', "malformed_json"),
}


@pytest.mark.parametrize("suffix", ["jsonl", "json"])
@pytest.mark.parametrize(("value", "code"), ODD.values(), ids=ODD)
def test_an_odd_record_is_rejected_and_explained(tmp_path: Path, value: bytes, code: str, suffix: str) -> None:
    path = tmp_path / f"odd.{suffix}"
    path.write_bytes(value + b"\n")
    result = CliRunner().invoke(main, ["explain", str(path)])
    assert (result.exit_code, result.stderr) == (0, "")
    (line,) = result.stdout.splitlines()
    told = json.loads(line)
    assert (told["outcome"], told["code"]) == ("reject", code)
    assert len(line) < 2_000
    assert CliRunner().invoke(main, ["translate", str(path)]).exit_code == 1


def test_an_empty_file_gives_nothing(tmp_path: Path) -> None:
    path = tmp_path / "empty.jsonl"
    path.touch()
    for command in ("translate", "explain"):
        result = CliRunner().invoke(main, [command, str(path)])
        assert (result.exit_code, result.output) == (0, "")


@pytest.mark.parametrize("command", ["translate", "explain"])
@pytest.mark.parametrize("name", ["missing.jsonl", "."])
def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path, command: str, name: str) -> None:
    result = CliRunner().invoke(main, [command, str(tmp_path / name)])
    assert (result.exit_code, len(result.stderr.splitlines()), result.stdout) == (2, 1, "")
    assert str(tmp_path) in result.stderr


def test_text_in_a_payload_cannot_command_the_terminal() -> None:
    (line,) = run("explain", [request("steps/sessionStart", {"text": "\x1b[2J \x9b2J \u202e"})]).stdout.splitlines()
    assert line.isprintable()
    assert json.loads(line)["normalized"][0]["payload"]["text"] == "\x1b[2J \x9b2J \u202e"


def test_each_line_is_answered_as_it_comes() -> None:
    """`tail -f … | explain` must not wait for the end of the input."""
    command = [sys.executable, "-m", "acs_aaep_bridge", "explain"]
    with subprocess.Popen(
        command, env={"PYTHONPATH": str(ROOT / "src")}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(2):
            process.stdin.write(json.dumps(request("steps/sessionStart")) + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["outcome"] == "emit"
        process.stdin.close()
    assert process.returncode == 0


def test_it_ends_quietly_when_its_reader_does(tmp_path: Path) -> None:
    many = tmp_path / "many.jsonl"
    many.write_text((json.dumps(request("steps/sessionStart")) + "\n") * 2_000, encoding="utf-8")
    command = [sys.executable, "-m", "acs_aaep_bridge", "explain", str(many)]
    with subprocess.Popen(
        command, env={"PYTHONPATH": str(ROOT / "src")}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0
