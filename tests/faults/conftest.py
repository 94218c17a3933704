from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="many more faults, and the report into docs/delivery.md")
    parser.addoption("--seed", type=int, default=1, help="another order of the same faults, and other traffic")
