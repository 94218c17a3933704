"""Apache Kafka from Maven Central: its jars, once, into a cache that later runs need no network for."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VERSION = os.environ.get("KAFKA_VERSION", "4.4.0")
CACHE = Path.home() / ".cache" / "acs-aaep-bridge"
_POM = Path(__file__).with_name("pom.xml")


class Unavailable(Exception):
    """Kafka cannot be had here; says what is missing."""


@contextmanager
def fetching(name: str) -> Iterator[None]:
    """Only one process at a time: several may start at once and want the same thing. Look again whether it is there."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def java() -> str:
    """The `java` command, Java 17 or newer."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else None
    found = found or shutil.which("java")
    if found is None:
        raise Unavailable("no `java` on the PATH: install a Java 17 runtime")
    return found


def classpath(version: str = VERSION) -> str:
    """The classpath of a Kafka broker. Fetches the jars when the cache does not hold them; raises Unavailable."""
    folder = CACHE / f"kafka-{version}"
    if not folder.is_dir():
        _fetch(version, folder)
    return f"{folder}/*"


def _fetch(version: str, folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable(f"Kafka {version} is not in {CACHE}, and there is no `mvn` to fetch it with")
    with fetching(folder.name):
        if folder.is_dir():
            return
        with tempfile.TemporaryDirectory(dir=CACHE, prefix="fetch-") as scratch:
            command = [maven, "--quiet", "--batch-mode", "--file", str(_POM), f"-Dkafka.version={version}"]
            command += ["dependency:copy-dependencies", f"-DoutputDirectory={scratch}/jars"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
            if done.returncode:
                raise Unavailable(f"Kafka {version} could not be fetched:\n{(done.stdout + done.stderr)[-2000:]}")
            (Path(scratch) / "jars").rename(folder)


if __name__ == "__main__":
    print(classpath())
