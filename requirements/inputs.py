"""Write the inputs of `make lock`: what pyproject.toml asks for, by purpose. Each lock agrees with the one before it."""

import tomllib
from pathlib import Path

HERE = Path(__file__).parent
tree = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))
extras = tree["project"]["optional-dependencies"]
runtime = [*tree["project"]["dependencies"], *extras["uvloop"]]

inputs = {
    "runtime": runtime,
    "demo": ["-c runtime.txt", *runtime, *extras["demo"]],
    "build": ["-c runtime.txt", *tree["build-system"]["requires"]],
    "dev": ["-c demo.txt", *runtime, *extras["demo"], *tree["dependency-groups"]["dev"], *tree["build-system"]["requires"]],
}
for name, lines in inputs.items():
    (HERE / f"{name}.in").write_text("\n".join(lines) + "\n", encoding="utf-8")
