"""The three paths, over real sockets."""

from __future__ import annotations

import aiohttp
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_plain

from acs_aaep_bridge.config import Http
from acs_aaep_bridge.errors import ConfigError
from acs_aaep_bridge.telemetry.http import serving
from acs_aaep_bridge.telemetry.readiness import FRESH_SECONDS, Readiness
from acs_aaep_bridge.telemetry.registry import Metrics

LOCAL = Http(host="127.0.0.1", port=0)


async def get(port: int, path: str, accept: str | None = None) -> tuple[int, str, str]:
    headers = {"Accept": accept} if accept else {}
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}", headers=headers) as response:
        return response.status, response.headers["Content-Type"], await response.text()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_metrics_speak_openmetrics_to_who_asks_for_it_and_plain_text_to_others() -> None:
    metrics = Metrics(("normalize",))
    async with serving(LOCAL, metrics.registry, Readiness((), Clock())) as port:
        status, kind, text = await get(port, "/metrics", "application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
        assert (status, kind.split(";")[0]) == (200, "application/openmetrics-text")
        assert text.endswith("# EOF\n")
        openly = {family.name for family in parse_openmetrics(text)}  # type: ignore[no-untyped-call]
        status, kind, text = await get(port, "/metrics")
        assert (status, kind.split(";")[0]) == (200, "text/plain")
        assert {family.name for family in parse_plain(text)} == openly


async def test_readyz_gives_every_stages_reasons_and_livez_does_not_care() -> None:
    clock = Clock()
    readiness = Readiness(("normalize", "lifecycle"), clock)
    async with serving(LOCAL, Metrics(()).registry, readiness) as port:
        assert await get(port, "/readyz") == (
            503,
            "text/plain; charset=utf-8",
            "not ready\nnormalize: starting\nlifecycle: starting\n",
        )
        readiness.report("normalize", [])
        readiness.report("lifecycle", ["restoring 2 of 12 partitions", "broker unreachable"])
        status, _, text = await get(port, "/readyz")
        assert (status, text) == (503, "not ready\nlifecycle: restoring 2 of 12 partitions\nlifecycle: broker unreachable\n")
        readiness.report("lifecycle", [])
        assert (await get(port, "/readyz"))[::2] == (200, "ready\n")
        clock.now = FRESH_SECONDS + 1
        status, _, text = await get(port, "/readyz")
        assert (status, text.splitlines()[1]) == (503, "normalize: has not reported for 31 s")
        assert (await get(port, "/livez"))[::2] == (200, "ok\n")


async def test_a_port_in_use_is_one_clear_configuration_error() -> None:
    registry, readiness = Metrics(()).registry, Readiness((), Clock())
    async with serving(LOCAL, registry, readiness) as port:
        with pytest.raises(ConfigError) as caught:
            async with serving(Http(host="127.0.0.1", port=port), registry, readiness):
                pass
    [problem] = caught.value.problems
    assert str(problem).startswith(f"http: 127.0.0.1:{port} is in use")


async def test_a_host_that_is_not_ours_is_one_clear_configuration_error() -> None:
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1:0 is not an address of this machine"):
        async with serving(Http(host="192.0.2.1", port=0), Metrics(()).registry, Readiness((), Clock())):
            pass


async def test_the_port_is_free_again_afterwards() -> None:
    registry, readiness = Metrics(()).registry, Readiness((), Clock())
    async with serving(LOCAL, registry, readiness) as port:
        pass
    async with serving(Http(host="127.0.0.1", port=port), registry, readiness) as again:
        assert again == port
