"""A real schema registry with the Confluent API: Apicurio Registry in memory, from Maven Central, on a local Java 17."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from . import jars
from .process import Child, free_ports, until

VERSION = os.environ.get("APICURIO_VERSION", "2.6.13.Final")
"""The last line that runs on Java 17; 3.3 wants Java 21."""
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
_MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"


class SchemaRegistry:
    """One registry process. `url` is what `schema_registry.url` takes. What it holds is gone when it stops."""

    def __init__(self, home: Path) -> None:
        """Raises jars.Unavailable when it cannot be had here."""
        self._home = home
        self._folder = folder()
        self._port = free_ports(1)[0]
        self._child: Child | None = None
        self.url = f"http://127.0.0.1:{self._port}/apis/ccompat/v7"

    def start(self) -> None:
        jar = next(self._folder.glob("*-runner.jar"))
        env = os.environ | {"QUARKUS_HTTP_HOST": "127.0.0.1", "QUARKUS_HTTP_PORT": str(self._port)}
        command = [jars.java(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-jar", str(jar)]
        self._child = child = Child(command, self._home / "registry.log", env)
        until(lambda: self._answers() or not child.running(), 90, "the schema registry answers")
        if not child.running():
            raise AssertionError(f"the schema registry ended at its start\n{child.tail()}")

    def stop(self) -> None:
        if self._child is not None:
            self.thaw()
            self._child.stop()

    def freeze(self) -> None:
        """It still accepts connections and answers nothing."""
        self._running().send(signal.SIGSTOP)

    def thaw(self) -> None:
        self._running().send(signal.SIGCONT)

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """One request of the test's own, past the code under test; the JSON answer. Raises HTTPError from 400 up."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": _MEDIA_TYPE}, method=method)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)

    def _running(self) -> Child:
        assert self._child is not None, "the registry was not started"
        return self._child

    def _answers(self) -> bool:
        try:
            self.ask("GET", "/subjects")
        except (OSError, ValueError):
            return False
        return True


def folder(version: str = VERSION) -> Path:
    """The unpacked registry. Fetched when the cache does not hold it; raises jars.Unavailable."""
    found = jars.CACHE / f"apicurio-registry-{version}"
    if found.is_dir():
        return found
    maven = shutil.which("mvn")
    if maven is None:
        raise jars.Unavailable(f"Apicurio Registry {version} is not in {jars.CACHE}, and there is no `mvn` to fetch it with")
    with jars.fetching(found.name):
        if not found.is_dir():
            _fetch(maven, version, found)
    return found


def _fetch(maven: str, version: str, found: Path) -> None:
    artifact = f"io.apicurio:apicurio-registry-app:{version}:tar.gz:all"
    with tempfile.TemporaryDirectory(dir=jars.CACHE, prefix="fetch-") as scratch:
        command = [maven, "--quiet", "--batch-mode", f"{_PLUGIN}:get", f"-Dartifact={artifact}", "-Dtransitive=false"]
        _run(command, version)
        command = [maven, "--quiet", "--batch-mode", "--offline", f"{_PLUGIN}:copy", f"-Dartifact={artifact}"]
        _run([*command, f"-DoutputDirectory={scratch}"], version)
        archive = next(Path(scratch).glob("*.tar.gz"))
        with tarfile.open(archive) as packed:
            packed.extractall(Path(scratch) / "app", filter="data")
        (Path(scratch) / "app").rename(found)


def _run(command: list[str], version: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise jars.Unavailable(f"Apicurio Registry {version} could not be fetched:\n{(done.stdout + done.stderr)[-2000:]}")


if __name__ == "__main__":
    print(folder())
