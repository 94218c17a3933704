"""The demonstration as a newcomer runs it: a process of its own, that accounts for everything and cleans up."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.embedded

SRC = Path(__file__).parents[3] / "src"


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that a test starts; whatever is left of them afterwards is ended."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def demo(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "acs_aaep_bridge", "demo", *arguments]
    return subprocess.Popen(command, env={"PYTHONPATH": str(SRC)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def account(output: str) -> dict[str, list[int]]:
    """The numbers in each line of the account, by its first word."""
    lines = [line.split(maxsplit=1) for line in output.splitlines()[-6:-1]]
    return {line[0]: [int(number) for number in re.findall(r"\b\d+\b", line[1])] for line in lines}


def test_it_shows_both_sides_ends_by_itself_and_accounts_for_everything(started: list[subprocess.Popen[str]]) -> None:
    begun = time.monotonic()
    process = demo("--seconds", "9", "--rate", "40")
    started.append(process)
    out, err = process.communicate(timeout=60)
    assert time.monotonic() - begun < 30
    assert (process.returncode, err) == (0, "")
    assert out.splitlines()[-1] == "Everything is accounted for."
    for column in ("in   ", "out  ", "heard"):
        assert any(line.startswith(f"{column} | ") for line in out.splitlines())
    assert "Important: " in out
    numbers = account(out)
    (published,) = numbers["published"]
    total, emitted, absorbed, skipped, rejected = numbers["normalize"]
    assert published == total == emitted + absorbed + skipped + rejected
    assert emitted == numbers["lifecycle"][0] == sum(numbers["lifecycle"][1:])
    assert min(skipped, rejected, numbers["AAEP"][0]) > 0
    assert numbers["dead"][0] == rejected + numbers["lifecycle"][4] == sum(numbers["dead"][1:])


def test_ctrl_c_ends_it_early_with_the_account_and_nothing_left_behind(started: list[subprocess.Popen[str]]) -> None:
    process = demo("--seconds", "300")
    started.append(process)
    assert process.stdout is not None
    seen = ""
    while "heard |" not in seen:
        line = process.stdout.readline()
        assert line, process.communicate()
        seen += line
    address = re.search(r"http://\S+/metrics", seen)
    assert address
    with urllib.request.urlopen(address[0], timeout=10) as answer:
        assert b"acs_aaep_bridge_events_total" in answer.read()
    children = psutil.Process(process.pid).children()
    assert children
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert out.splitlines()[-1] == "Everything is accounted for."
    assert not any(child.is_running() for child in children)


def test_wrong_seconds_are_one_line(started: list[subprocess.Popen[str]]) -> None:
    process = demo("--seconds", "never")
    started.append(process)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, len(err.splitlines())) == (2, "", 1)
