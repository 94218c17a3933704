"""The top of the command line: help, and what becomes of each kind of error."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from acs_aaep_bridge import __version__, errors
from acs_aaep_bridge.cli import main, program

SRC = Path(__file__).parents[2] / "src"


def test_help_names_every_command_and_exit_code() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    codes = {error.exit_code for error in (errors.StartError, errors.PartitionTakeError, errors.StalledError, errors.ConfigError)}
    for expected in (*program.COMMANDS, *(f"\n    {code} " for code in sorted(codes | {0, 1, program.BUG, program.INTERRUPTED}))):
        assert expected in result.stdout


def test_version() -> None:
    assert CliRunner().invoke(main, ["--version"]).stdout == f"acs-aaep-bridge {__version__}\n"


def test_help_is_quick_because_nothing_heavy_is_imported() -> None:
    script = (
        "import sys\nfrom acs_aaep_bridge.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print(sorted(set(sys.modules) & {'aiokafka', 'pydantic', 'rich', 'jsonschema_rs', 'aiohttp', 'structlog'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env={"PYTHONPATH": str(SRC)}, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def raising(error: BaseException) -> Callable[..., click.Command]:
    """A stand-in for the lookup of a command, which fails in the given way when called."""

    @click.command()
    def command() -> None:
        raise error

    return lambda self, ctx, name: command


TREE = [error for error in vars(errors).values() if isinstance(error, type) and issubclass(error, errors.BridgeError)]


@pytest.mark.parametrize("kind", [kind for kind in TREE if kind is not errors.ConfigError], ids=lambda kind: kind.__name__)
def test_an_error_of_the_bridge_is_one_line_and_its_own_exit_code(kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program.Program, "get_command", raising(kind("what\nhappened")))
    result = CliRunner().invoke(main, ["run"])
    assert result.stderr == "error: what happened\n"
    assert result.exit_code == getattr(kind, "exit_code", None)


def test_a_bug_is_one_line_that_quotes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program.Program, "get_command", raising(KeyError("content of a payload")))
    result = CliRunner().invoke(main, ["run"])
    assert result.exit_code == program.BUG
    assert len(result.stderr.splitlines()) == 1
    assert "KeyError at test_program.py:" in result.stderr
    assert "payload" not in result.stderr


def test_ctrl_c_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program.Program, "get_command", raising(KeyboardInterrupt()))
    result = CliRunner().invoke(main, ["run"])
    assert (result.exit_code, result.output) == (program.INTERRUPTED, "")


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = [sys.executable, "-m", "acs_aaep_bridge", "config", "schema"]
    with subprocess.Popen(
        command, env={"PYTHONPATH": str(SRC)}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


@pytest.mark.parametrize("arguments", [["nonsense"], ["config", "check", "--nonsense"], ["config", "check", "--set", "grace"]])
def test_wrong_usage_is_one_line_and_exit_code_2(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
