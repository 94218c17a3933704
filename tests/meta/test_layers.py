"""Imports go one way, and the core can neither look at a clock nor touch the world."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
MODULES = sorted((SOURCE / "acs_aaep_bridge").rglob("*.py"))

MAY_IMPORT: dict[str, set[str]] = {
    "errors": {"errors"},
    "wording": set(),
    "config": {"errors", "wording", "config"},
    "core": {"errors", "config", "core"},
    "kafka": {"errors", "config", "core", "kafka"},
    "telemetry": {"errors", "config", "core", "telemetry"},
    "samples": {"errors", "config", "core", "samples"},
    "cli": {"errors", "config", "core", "kafka", "telemetry", "samples", "cli"},
    "__main__": {"cli"},
}
# The observer is what the shell reports to: telemetry implements it, and may know no more of the shell.
EXCEPTIONS = {("telemetry", "acs_aaep_bridge.kafka.observer")}

IMPURE = {
    *("asyncio", "threading", "multiprocessing", "concurrent", "subprocess", "socket", "ssl", "select", "signal"),
    *("time", "random", "secrets", "logging", "os", "io", "shutil", "tempfile", "sys"),
    *("aiokafka", "aiohttp", "structlog", "stamina", "prometheus_client", "click", "rich"),
}
IMPURE_CALLS = {"now", "utcnow", "today", "uuid1", "uuid4", "urandom", "open", "write_text", "write_bytes", "print", "input"}
# In memory: fastavro reads from and writes to a BytesIO.
PURE_ENOUGH = {"io.BytesIO"}


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def layer(module: str) -> str | None:
    parts = module.split(".")
    if parts[0] != "acs_aaep_bridge":
        return None
    return parts[1] if len(parts) > 1 and parts[1] in MAY_IMPORT else "package"


def own_layer(file: Path) -> str:
    return file.relative_to(SOURCE / "acs_aaep_bridge").parts[0].removesuffix(".py")


@pytest.mark.parametrize("file", MODULES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_imports_go_one_way(file: Path) -> None:
    own = own_layer(file)
    if own == "__init__":
        return
    for module in imports(ast.parse(file.read_text(encoding="utf-8"))):
        target = layer(module)
        if target in {None, "package"} or any(own == who and module.startswith(what) for who, what in EXCEPTIONS):
            continue
        assert target in MAY_IMPORT[own], f"{own} imports {module}"


@pytest.mark.parametrize("file", [file for file in MODULES if own_layer(file) == "core"], ids=lambda file: file.name)
def test_the_core_knows_no_clock_no_chance_and_no_world(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    impure = [name for name in imports(tree) if name.split(".")[0] in IMPURE and name not in PURE_ENOUGH]
    assert not impure
    called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = {func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "") for func in called}
    assert not names & IMPURE_CALLS


def test_every_layer_is_known() -> None:
    found = {own_layer(file) for file in MODULES} - {"__init__"}
    assert found == set(MAY_IMPORT)
