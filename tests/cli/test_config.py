"""`config check | show | schema`, and the documented configuration files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from acs_aaep_bridge.cli import main
from acs_aaep_bridge.cli.config import json_schema
from acs_aaep_bridge.config import Config, load

CONFIG = Path(__file__).parents[2] / "config"
DOCUMENTED = CONFIG / "bridge.yaml"
EXAMPLES = sorted((CONFIG / "examples").glob("*.yaml"))


def parsed(path: Path) -> Any:
    return YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))


def shape(value: Any) -> Any:
    """The names of the options alone, sections inside sections; free-form tables count as one option."""
    return {name: shape(inner) for name, inner in value.items()} if isinstance(value, dict) else None


def test_the_documented_file_has_every_option() -> None:
    assert shape(parsed(DOCUMENTED)) == shape(Config().model_dump(mode="json"))


def test_the_documented_file_says_the_defaults() -> None:
    assert load(DOCUMENTED.read_text(encoding="utf-8"), {}) == Config()


def test_every_option_of_the_documented_file_is_explained() -> None:
    """Each option has a comment on its line, above it, or above the group of lines it stands in."""
    explained = False
    bare: list[str] = []
    for line in DOCUMENTED.read_text(encoding="utf-8").splitlines():
        text = line.strip()
        if not text:
            explained = False
        elif text.startswith("#") or "#" in text:
            explained = True
        elif not text.endswith(":") and not explained:
            bare.append(text)
    assert bare == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_a_valid_configuration(path: Path) -> None:
    assert load(path.read_text(encoding="utf-8"), {}) != Config()


def test_every_sasl_mechanism_and_tls_has_an_example() -> None:
    kafka = [load(path.read_text(encoding="utf-8"), {}).kafka for path in EXAMPLES]
    mechanisms = json_schema()["$defs"]["Sasl"]["properties"]["mechanism"]["enum"]
    assert {one.sasl.mechanism for one in kafka if one.sasl} == set(mechanisms)
    assert any(one.tls.cert_file for one in kafka)


@pytest.mark.parametrize("path", [DOCUMENTED, *EXAMPLES], ids=lambda path: path.stem)
def test_the_schema_accepts_what_the_bridge_accepts(path: Path) -> None:
    jsonschema.validate(parsed(path), json_schema(), cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize(
    "wrong",
    [
        {"nonsense": {}},
        {"kafka": {"compresion": "lz4"}},
        {"kafka": {"session_timeout": 45000}},
        {"delivery": "twice"},
        {"kafka": {"sasl": {"mechanism": "PLAIN", "username": "u", "password": "inline"}}},
    ],
    ids=json.dumps,
)
def test_the_schema_refuses_what_the_bridge_refuses(wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, json_schema(), cls=jsonschema.Draft202012Validator)


def test_the_defaults_in_the_schema_are_written_as_in_the_file() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())
    kafka = json_schema()["$defs"]["Kafka"]["properties"]
    assert kafka["session_timeout"]["default"] == parsed(DOCUMENTED)["kafka"]["session_timeout"]
    assert kafka["fetch_max"]["default"] == parsed(DOCUMENTED)["kafka"]["fetch_max"]


def test_what_show_prints_is_a_configuration_that_means_the_same(tmp_path: Path) -> None:
    overrides = ["--set", "sessions.grace=90s", "--set", "limits.max_record_bytes=1500", "--set", 'content.names={"a":"b"}']
    shown = CliRunner().invoke(main, ["config", "show", *overrides])
    assert shown.exit_code == 0
    again = tmp_path / "again.yaml"
    again.write_text(shown.stdout, encoding="utf-8")
    twice = CliRunner().invoke(main, ["config", "show", "--config", str(again)])
    assert twice.stdout == shown.stdout
    loaded = load(shown.stdout, {})
    assert (loaded.sessions.grace, loaded.limits.max_record_bytes, loaded.content.names) == (90_000, 1_500, {"a": "b"})


def test_show_prints_the_reference_of_a_secret_and_never_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "correct horse")
    result = CliRunner().invoke(main, ["config", "show", "--config", str(CONFIG / "examples" / "sasl-plain.yaml")])
    assert load(result.stdout, {}).kafka.sasl == load((CONFIG / "examples/sasl-plain.yaml").read_text(), {}).kafka.sasl
    assert "env: KAFKA_PASSWORD" in result.stdout
    assert "correct horse" not in result.output


def test_check_reports_every_problem_on_a_line_of_its_own(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("kafka:\n  compresion: lz4\n  session_timeout: 45\nnonsense: 1\n", encoding="utf-8")
    result = CliRunner().invoke(main, ["config", "check", "--config", str(bad)], env={"BRIDGE_LOG__LEVEL": "loud"})
    assert result.exit_code == 2
    lines = result.stderr.splitlines()
    assert all(line.startswith("error: ") for line in lines)
    assert {line.split(": ")[1] for line in lines} == {"kafka.compresion", "kafka.session_timeout", "nonsense", "log.level"}
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("text", "says"),
    [("kafka: [", "not valid YAML: line 1"), ("- a\n- b\n", "mapping of sections"), ("\x00", "not valid YAML")],
)
def test_a_file_that_is_no_configuration_is_one_line(tmp_path: Path, text: str, says: str) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(main, ["config", "check", "--config", str(bad)])
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert says in result.stderr
    assert str(bad) in result.stderr


@pytest.mark.parametrize("name", ["missing.yaml", "."])
def test_a_configuration_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    result = CliRunner().invoke(main, ["config", "check", "--config", str(path)])
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    assert str(path) in result.stderr


def test_check_files_finds_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"\xff\x00")  # a signature's secret may be any bytes
    keys = json.dumps({"here": {"file": str(tmp_path / "secret")}, "gone": {"file": str(tmp_path / "no")}})
    arguments = ["config", "check", "--set", f"kafka.tls.ca_file={tmp_path}/ca.pem", "--set", f"signature.keys={keys}"]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    result = CliRunner().invoke(main, [*arguments, "--files"])
    assert result.exit_code == 2
    assert [line.split(": ")[1] for line in result.stderr.splitlines()] == ["kafka.tls.ca_file", "signature.keys.gone"]
