"""/metrics, /livez and /readyz over HTTP, on the event loop that does the work."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.aiohttp import make_aiohttp_handler

from acs_aaep_bridge.config import Http
from acs_aaep_bridge.errors import ConfigError, Problem
from acs_aaep_bridge.telemetry.readiness import Readiness

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_READINESS: Final = web.AppKey("readiness", Readiness)
_WHY = {
    errno.EADDRINUSE: "is in use by another process; choose another port, or 0 for any free one",
    errno.EACCES: "may not be opened by this user; choose a port above 1023",
    errno.EADDRNOTAVAIL: "is not an address of this machine",
}


@asynccontextmanager
async def serving(http: Http, registry: CollectorRegistry, readiness: Readiness) -> AsyncIterator[int]:
    """Serve until the block ends; gives the port that was really opened (it differs from the configured one when that is 0).

    Raises ConfigError when the address cannot be opened. An answer to `/livez` says that the event loop turns and nothing
    else: neither a broker outage nor a long rebalance may get the process killed.
    """
    app = web.Application()
    app[_READINESS] = readiness
    app.router.add_get("/metrics", make_aiohttp_handler(registry))
    app.router.add_get("/livez", _livez)
    app.router.add_get("/readyz", _readyz)
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, http.host, http.port)
        try:
            await site.start()
        except OSError as error:
            raise ConfigError([Problem("http", f"{http.host}:{http.port} {_reason(error)}")]) from None
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _reason(error: OSError) -> str:
    return _WHY.get(error.errno or 0, f"cannot be opened: {error.strerror or 'the host name does not resolve'}")


async def _livez(_: web.Request) -> web.Response:
    return web.Response(text="ok\n")


async def _readyz(request: web.Request) -> web.Response:
    reasons = request.app[_READINESS].reasons()
    if reasons:
        return web.Response(status=503, text="not ready\n" + "".join(f"{reason}\n" for reason in reasons))
    return web.Response(text="ready\n")
