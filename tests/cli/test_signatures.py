"""What `explain` makes of signatures: the same as `run`, with the secrets of the configuration."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner
from tests.core import signing
from tests.samples import request

from acs_aaep_bridge.cli import main


def test_signatures_are_checked_with_the_configured_secrets(tmp_path: Path) -> None:
    """A right one is accepted, a missing and a forged one are rejected each by its code."""
    (tmp_path / "key").write_bytes(b"known-answer-test-secret\n")
    signed = [signing.signed(request(), secret, "k") for secret in (b"known-answer-test-secret", b"guessed")]
    lines = [json.dumps(sent) for sent in (signed[0], request(), signed[1])]
    keys = json.dumps({"k": {"file": str(tmp_path / "key")}})
    arguments = ["explain", "--set", "signature.mode=require", "--set", f"signature.keys={keys}", "-"]
    result = CliRunner().invoke(main, arguments, input="\n".join(lines) + "\n")
    told = [json.loads(line) for line in result.stdout.splitlines()]
    assert [one.get("code", one["outcome"]) for one in told] == ["emit", "signature_missing", "signature_invalid"]


def test_a_secret_that_is_not_there_is_a_mistake_of_the_configuration(tmp_path: Path) -> None:
    """Named by its option and file, before anything is read."""
    keys = json.dumps({"k": {"file": str(tmp_path / "none")}})
    arguments = ["explain", "--set", "signature.mode=verify", "--set", f"signature.keys={keys}", "-"]
    result = CliRunner().invoke(main, arguments, input="")
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert "signature.keys.k" in result.stderr
