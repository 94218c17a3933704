"""One line per event, JSON for machines, and nothing of a payload in it."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from aiokafka.errors import KafkaConnectionError

from acs_aaep_bridge.config import Log
from acs_aaep_bridge.errors import Braked
from acs_aaep_bridge.telemetry.logs import configure

SECRET = "the-user-said-this"


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """Logging belongs to the process: put it back."""
    root = logging.getLogger()
    handlers, level, show = root.handlers[:], root.level, warnings.showwarning
    yield
    root.handlers[:], warnings.showwarning = handlers, show
    root.setLevel(level)
    logging.captureWarnings(False)
    structlog.reset_defaults()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_line_is_json_with_time_level_and_event_first() -> None:
    out = io.StringIO()
    configure(Log(), out).warning("partition.blocked", partition=3, reasons=("a", "b"))
    [line] = lines(out)
    assert list(line) == ["time", "level", "event", "partition", "reasons"]
    assert (line["level"], line["event"], line["partition"]) == ("warning", "partition.blocked", 3)
    assert str(line["time"]).endswith("Z")


def test_a_person_at_a_terminal_gets_plain_text_unless_json_is_asked_for() -> None:
    out = Terminal()
    configure(Log(), out).info("http.listening", port=9404)
    assert "http.listening" in out.getvalue()
    with pytest.raises(json.JSONDecodeError):
        lines(out)
    out = Terminal()
    configure(Log(format="json"), out).info("http.listening", port=9404)
    assert lines(out)[0]["port"] == 9404


def test_the_level_is_obeyed() -> None:
    out = io.StringIO()
    log = configure(Log(level="warning"), out)
    log.debug("a")
    log.info("b")
    log.warning("c")
    assert [line["event"] for line in lines(out)] == ["c"]


def test_libraries_are_heard_from_warning_up() -> None:
    out = io.StringIO()
    configure(Log(), out)
    logging.getLogger("aiokafka.conn").info("quiet")
    logging.getLogger("aiokafka.client").error("Unable connect to node with id %s: %s", 1, KafkaConnectionError("refused"))
    [line] = lines(out)
    assert (line["event"], line["logger"], line["level"]) == ("library.message", "aiokafka.client", "error")
    assert line["message"] == "Unable connect to node with id 1: KafkaConnectionError: refused"


def test_what_a_library_repeats_every_second_is_written_once_a_minute_with_its_count() -> None:
    out, now = io.StringIO(), [0.0]
    configure(Log(), out, lambda: now[0])
    for second in range(61):
        now[0] = float(second)
        logging.getLogger("aiokafka.consumer.fetcher").warning("Not authorized to read from topic %s.", "a")
        if second == 30:
            logging.getLogger("aiokafka.consumer.fetcher").warning("Not authorized to read from topic %s.", "b")
    assert [(line["message"][-2:], line.get("repeated")) for line in lines(out)] == [("a.", None), ("b.", None), ("a.", 59)]


def test_whole_requests_which_aiokafka_prints_at_debug_never_appear() -> None:
    out = io.StringIO()
    configure(Log(level="debug"), out)
    logging.getLogger("aiokafka.conn").debug("Request %s", SECRET.encode())
    assert out.getvalue() == ""


def undecodable() -> UnicodeDecodeError:
    try:
        (SECRET.encode() + b"\xff").decode()
    except UnicodeDecodeError as error:
        return error
    raise AssertionError


@pytest.mark.parametrize("form", ["json", "console"])
def test_exceptions_that_quote_what_they_failed_on_are_named_only(form: str) -> None:
    out = io.StringIO()
    configure(Log.model_validate({"format": form}), out)
    error = undecodable()
    logging.getLogger("aiokafka.consumer.fetcher").error("Unexpected error: %r", error)
    logging.getLogger("aiokafka.consumer.fetcher").error("Unexpected error", exc_info=error)
    logging.getLogger("other").warning("%s", [error])
    assert SECRET not in out.getvalue()
    assert "UnicodeDecodeError" in out.getvalue()


async def test_a_task_that_died_unseen_is_reported_without_the_bytes_it_died_on() -> None:
    out = io.StringIO()
    configure(Log(), out)

    async def die() -> None:
        raise undecodable()

    task = asyncio.create_task(die())
    await asyncio.wait([task])
    del task
    [line] = lines(out)
    assert (line["logger"], line["message"]) == ("asyncio", "Task exception was never retrieved")
    assert line["error"] == "UnicodeDecodeError"
    assert SECRET not in out.getvalue()


def test_a_message_whose_arguments_do_not_fit_is_still_a_line() -> None:
    out = io.StringIO()
    configure(Log(), out)
    logging.getLogger("other").warning("%d", "x")
    assert lines(out)[0]["message"] == "%d"


@pytest.mark.parametrize("form", ["json", "console"])
def test_fields_are_held_to_the_same_rule(form: str) -> None:
    out = io.StringIO()
    log = configure(Log.model_validate({"format": form}), out)
    log.error("run.failed", error=ValueError(SECRET), value=SECRET.encode(), nested={"errors": (undecodable(),)})
    log.error("run.failed", error=Braked("acs.events.raw-3 is braked"))
    assert SECRET not in out.getvalue()
    assert f"<{len(SECRET)} bytes>" in out.getvalue()
    assert "acs.events.raw-3 is braked" in out.getvalue()


@pytest.mark.parametrize("value", [2**70, "\ud800", object, {1: 2}, {(1, 2): None}, float("nan")])
def test_no_field_is_too_strange_to_be_logged(value: object) -> None:
    out = io.StringIO()
    configure(Log(), out).info("strange", value=value)
    assert lines(out)[0]["event"].strip("'") == "strange"
