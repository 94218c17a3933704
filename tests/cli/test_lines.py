"""Records from files: one value a line, however odd the file is."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest

from acs_aaep_bridge.cli import lines as reading
from acs_aaep_bridge.cli.lines import Line, described, lines, opened, plain
from acs_aaep_bridge.core.model import Record
from acs_aaep_bridge.errors import UsageError


def read(data: bytes, name: str = "records.jsonl") -> list[Line]:
    return list(lines(io.BytesIO(data), name))


def test_each_line_is_a_value_and_blank_lines_are_ignored() -> None:
    assert read(b'{"a":1}\n\n  \r\nnull\r\n\xff\xfe\n{"b":2}') == [
        Line(1, b'{"a":1}'),
        Line(4, b"null"),
        Line(5, b"\xff\xfe"),
        Line(6, b'{"b":2}'),
    ]


@pytest.mark.parametrize("name", ["records.jsonl", "records.json"])
def test_an_empty_file_has_no_values(name: str) -> None:
    assert read(b"", name) == []
    assert read(b"\n\n", name) == []


@pytest.mark.parametrize("value", [{"a": [1, 2]}, [{"a": 1}, {"b": 2}]], ids=["object", "array"])
def test_a_json_file_may_be_one_document_over_many_lines(value: Any) -> None:
    text = json.dumps(value, indent=2).encode() + b"\n"
    assert read(b"\n" + text, "one.json") == [Line(1, text.rstrip())]


@pytest.mark.parametrize("value", [{"a": [1, 2]}, [{"a": 1}, {"b": 2}]], ids=["object", "array"])
def test_a_json_file_may_hold_one_value_a_line(value: Any) -> None:
    text = json.dumps(value).encode()
    assert [line.text for line in read(text + b"\n\n" + text + b"\n", "many.json")] == [text, text]


def test_a_line_longer_than_the_limit_is_cut_and_the_next_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LONGEST", 100)
    first, second = read(b"x" * 5_000 + b"\n{}\n")
    assert 100 < len(first.text) < 5_000
    assert second.text == b"{}"


@pytest.mark.parametrize(("name", "why"), [("missing", "No such file"), ("", "directory"), ("a\0b", "null")])
def test_a_file_that_cannot_be_read_is_one_clear_error(tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(UsageError, match=why), opened(str(tmp_path / name)):
        pass


def record(form: object) -> Record:
    (found,) = described(Line(7, json.dumps(form).encode()), 3, "raw")
    return found


def test_a_plain_line_is_a_record_without_a_timestamp() -> None:
    assert plain(Line(9, b"{}"), 4, "raw") == Record("raw", 0, 4, -1, None, b"{}")


def test_a_described_record_has_what_is_said_of_it() -> None:
    assert record({"value": "{}"}) == Record("raw", 0, 3, -1, None, b"{}")
    whole = {
        "value": None,
        "key": "k",
        "headers": [["h", "ä"], ["h", None]],
        "timestamp": 5,
        "topic": "t",
        "partition": 2,
        "offset": 9,
    }
    assert record(whole) == Record("t", 2, 9, 5, b"k", None, (("h", "ä".encode()), ("h", None)))
    assert record({"value": "", "headers": {"h": "v"}, "unknown": 1}).headers == (("h", b"v"),)
    assert record({"value_base64": base64.b64encode(b"\xff\x00").decode()}).value == b"\xff\x00"


def test_an_array_of_described_records_is_many_records() -> None:
    found = list(described(Line(1, b'[{"value":"a"},{"value":"b"}]'), 5, "raw"))
    assert [(one.value, one.offset) for one in found] == [(b"a", 5), (b"b", 6)]


@pytest.mark.parametrize(
    ("form", "names"),
    [
        ("text", "JSON object"),
        ({}, "value"),
        ({"value": {}}, "value"),
        ({"value_base64": "?"}, "value_base64"),
        ({"value": "", "timestamp": "now"}, "timestamp"),
        ({"value": "", "partition": True}, "partition"),
        ({"value": "", "offset": 1 << 63}, "offset"),
        ({"value": "", "key": 1}, "key"),
        ({"value": "", "headers": [["a"]]}, "headers"),
        ({"value": "", "headers": {"a": 1}}, "headers"),
        ({"value": "", "headers": "a"}, "headers"),
    ],
    ids=str,
)
def test_a_form_that_is_wrong_is_named_with_its_line(form: object, names: str) -> None:
    with pytest.raises(UsageError, match=f"line 7: .*{names}"):
        record(form)
