"""DESIGN.md names every file and every dependency, and none that is not there."""

from __future__ import annotations

import re
import tomllib

from tests.tools import ROOT

DESIGN = (ROOT / "DESIGN.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "src" / "acs_aaep_bridge"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def first_cells(title: str) -> list[str]:
    """The first column of the table under one heading."""
    section = re.split(rf"^## {title}$", DESIGN, flags=re.MULTILINE)[1].split("\n## ")[0]
    return [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("| ")][1:]


def mapped() -> set[str]:
    """Paths in the file map; a name without a folder lies in the folder of the one before it."""
    found: set[str] = set()
    for cell in first_cells("File map"):
        folder = ""
        for name in re.findall(r"`([^`]+)`", cell):
            if "/" in name:
                folder = name.rpartition("/")[0] + "/"
                found.add(name)
            else:
                found.add(folder + name)
    return found


def test_the_file_map_names_what_is_there() -> None:
    assert [name for name in sorted(mapped()) if not (PACKAGE / name).exists()] == []


def test_every_file_is_on_the_map() -> None:
    """By its own name, or with its folder."""
    names = mapped()
    folders = tuple(name for name in names if name.endswith("/"))
    files = (path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if not path.name.startswith("__"))
    assert [name for name in sorted(files) if name not in names and not name.startswith(folders)] == []


def test_every_dependency_has_its_reason() -> None:
    argued = {name for cell in first_cells("Dependencies, and why each") for name in re.sub(r"\(.*?\)", "", cell).split()}
    declared = {re.split(r"[\[<>=~!]", one)[0] for one in PROJECT["project"]["dependencies"]}
    assert argued == declared
