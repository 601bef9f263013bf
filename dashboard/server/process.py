"""The server's process, from its start to its end: the door and the front before Streamlit, the watch over the store,
and the hands that carry out replays where it was given settings for that."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.middleware import Middleware

from producer_core.dashboard.auth import access, access_rules
from producer_core.dashboard.auth.browser_policy import BrowserPolicy
from producer_core.dashboard.auth.login import LoginMiddleware
from producer_core.dashboard.auth.oidc_return import OidcReturn
from producer_core.dashboard.auth.sessions import LoginAttempts, LoginSessions
from producer_core.dashboard.server import alert_worker, replay_worker, warm_up
from producer_core.dashboard.server.command import launch_folder
from producer_core.dashboard.server.page_middleware import PageMiddleware
from producer_core.dashboard.server.static_files import StaticFiles
from producer_core.errors import ConfigError
from producer_core.store import default_path


def parts(page: str) -> dict[str, Any]:
    """What the start script gives to `streamlit.App` besides the page; ConfigError where nobody may be served, or the
    file of client settings is wrong."""
    from streamlit import get_option
    from streamlit.file_util import get_static_dir

    hosts = get_option("server.allowedHosts") or ["*"]
    guard = guarded(get_option("server.address") or "0.0.0.0", hosts)  # noqa: S104
    access.keep(guard)
    replay_worker.worker_settings()  # a file that is wrong is said now, not at the first replay
    base = get_option("server.baseUrlPath") or ""
    files = StaticFiles(Path(get_static_dir()), launch_folder() / "static")
    front = Middleware(PageMiddleware, files=files, base=base, at_once=not guard.admission.oidc)
    https = guard.admission.comes_back_to.startswith("https:")
    policy = Middleware(BrowserPolicy, hosts=hosts, base=base, https=https)
    return {"middleware": [policy, *_door(guard, base), front], "lifespan": _living(files, page)}


def guarded(address: str, hosts: Sequence[str]) -> access.AccessGuard:
    """Who is let in at an address under some names, as the files of secrets say."""
    admitted = access_rules.read()
    if problem := access_rules.refusal(address, hosts, admitted):
        raise ConfigError(problem, fix="Set up a password or OIDC: see «Access» in the README.")
    return access.AccessGuard(admitted, LoginSessions(admitted.session), LoginAttempts(), started=True)


def _door(guard: access.AccessGuard, base: str) -> list[Middleware]:
    """With OIDC it is Streamlit that knows who is signed in, so there the page asks."""
    if guard.admission.oidc:
        return [Middleware(OidcReturn, base=base)]
    if not guard.admission.passwords:
        return []
    known: dict[str, Any] = {
        "admission": guard.admission, "sessions": guard.sessions, "attempts": guard.attempts, "base": base,
    }  # fmt: skip
    return [Middleware(LoginMiddleware, **known)]


def _living(files: StaticFiles, page: str) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def life(_: Any) -> AsyncIterator[None]:
        path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(default_path())
        warm_up.warm(path, files, page)
        alert_worker.watch(path)
        replay_worker.carry(path)
        try:
            yield
        finally:
            replay_worker.stop()
            alert_worker.stop()

    return life
