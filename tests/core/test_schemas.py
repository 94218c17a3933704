"""The shipped schemas: well-formed, complete, resolved at home, and the same in the wheel as in the source tree."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from acs_aaep_bridge.core import schemas
from acs_aaep_bridge.core.model import Violation

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "schemas").rglob("*.json"))
PUBLISHED = sorted((ROOT / "tests/fixtures/published").glob("*.json"))
ACS = "https://genai-security-project.github.io/agent-control-standard/schema/v0.1.0/"
ENVELOPE = "urn:acs-aaep-bridge:schema:acs:envelope"


def constraints(schema: Any) -> Any:
    """The schema without the annotations that constrain nothing."""
    if isinstance(schema, list):
        return [constraints(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: constraints(value)
        for name, value in schema.items()
        if not (name in {"title", "description"} and isinstance(value, str)) and name != "examples"
    }


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_schema_is_valid_by_its_meta_schema(file: Path) -> None:
    schema = json.loads(file.read_text(encoding="utf-8"))
    if "$id" in schema:
        jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("schema_id", sorted(schemas.shipped().ids))
def test_every_schema_compiles_from_what_is_shipped(schema_id: str) -> None:
    assert schemas.shipped().validator(schema_id) is not None


@pytest.mark.parametrize("file", PUBLISHED, ids=lambda file: file.stem)
def test_a_published_schema_keeps_its_id_and_every_constraint(file: Path) -> None:
    published = json.loads(file.read_text(encoding="utf-8"))
    if published["$id"] not in schemas.shipped().ids:
        pytest.skip("not shipped yet")
    assert constraints(schemas.shipped().schema(published["$id"])) == published


def test_a_reference_that_is_not_shipped_is_refused_without_asking_the_network() -> None:
    with pytest.raises(Exception, match="referred to but not shipped"):
        schemas.shipped().compile({"$ref": "https://example.com/elsewhere.json"})


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(Exception, match="no-such-format"):
        schemas.shipped().compile({"type": "string", "format": "no-such-format"})


def test_a_replaced_schema_changes_what_refers_to_it_and_not_the_original() -> None:
    refers = {"$ref": ACS + "provenance.json"}
    lenient = schemas.shipped().replacing({"$id": ACS + "provenance.json", "type": "object"})
    assert lenient.compile(refers).is_valid({})
    assert not schemas.shipped().compile(refers).is_valid({})


def test_violations_name_place_and_keyword_and_a_missing_member_itself() -> None:
    validator = schemas.shipped().validator(ENVELOPE)
    found = schemas.violations(validator, {"jsonrpc": "2.0", "method": "nope", "params": {"nonce": "short", "tenant_id": 7}})
    assert set(found) == {
        Violation("/id", "required"),
        Violation("/method", "pattern"),
        Violation("/params/acs_version", "required"),
        Violation("/params/request_id", "required"),
        Violation("/params/timestamp", "required"),
        Violation("/params/metadata", "required"),
        Violation("/params/payload", "required"),
        Violation("/params/nonce", "minLength"),
        Violation("/params/tenant_id", "type"),
    }


@pytest.mark.parametrize(
    ("path", "expected"),
    [((), ""), (("a", 0, "b"), "/a/0/b"), (("x/y", "m~n"), "/x~1y/m~0n"), (("a", "b" * 600), "/a"), (("",), "/")],
)
def test_a_pointer_follows_rfc_6901_and_stays_short(path: tuple[str | int, ...], expected: str) -> None:
    assert schemas.pointer(path) == expected


def test_violations_of_a_huge_value_are_bounded_and_still_found() -> None:
    validator = schemas.shipped().compile(
        {
            "type": "object",
            "required": ["outcome"],
            "properties": {"many": {"type": "array", "items": {"type": "string"}}},
            "additionalProperties": {"type": ["array", "string"]},
        }
    )
    assert len(schemas.violations(validator, {"outcome": "x", "many": [1] * 100_000})) == schemas.MAX_VIOLATIONS
    wide = {f"k{n}": "x" for n in range(100_000)} | {"outcome": "x"}
    assert schemas.violations(validator, wide | {"late": 1}) == (Violation("/late", "type"),)
    assert schemas.violations(validator, {"outcome": "x", "many": [*["x"] * 100_000, 1]}) == (Violation("/many/100000", "type"),)
    assert schemas.violations(validator, wide) == ()


def test_the_wheel_carries_every_schema_and_loads_it(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=60)
    installed = tmp_path / "installed"
    zipfile.ZipFile(next(tmp_path.glob("*.whl"))).extractall(installed)
    probe = (
        "import json, acs_aaep_bridge.core.schemas as s;"
        "[s.shipped().validator(i) for i in s.shipped().ids]; print(json.dumps([s.__file__, sorted(s.shipped().ids)]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe],
        cwd=tmp_path,
        env={"PYTHONPATH": str(installed)},
        check=True,
        capture_output=True,
        timeout=60,
    )
    module, ids = json.loads(done.stdout)
    assert Path(module).is_relative_to(installed)
    assert ids == sorted(schemas.shipped().ids)
