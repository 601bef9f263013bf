"""Assemble the server process: the middleware in front of Streamlit, and the workers for alerts and replays."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
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
from producer_core.dashboard.server.download_ids import keep_download_ids
from producer_core.dashboard.server.incident import READ_ONLY, is_incident
from producer_core.dashboard.server.page_middleware import PageMiddleware
from producer_core.dashboard.server.static_files import StaticFiles
from producer_core.errors import ConfigError
from producer_core.roles.policy_file import read_policy
from producer_core.store import default_path


def app_options(page: str) -> dict[str, Any]:
    """Return the middleware and the lifespan for `streamlit.App`.

    Raises ConfigError where the access rules forbid the address, the file of client settings or the approval policy is
    invalid.
    """
    from streamlit import get_option
    from streamlit.file_util import get_static_dir

    hosts = get_option("server.allowedHosts") or ["*"]
    guard = load_guard(get_option("server.address") or "0.0.0.0", hosts)  # noqa: S104
    if is_incident(_store_path()):
        guard = replace(guard, read_only=READ_ONLY)
    else:
        replay_worker.worker_settings()  # an invalid file stops the start instead of the first replay
        read_policy()
    access.set_guard(guard)
    keep_download_ids()
    base = get_option("server.baseUrlPath") or ""
    files = StaticFiles(Path(get_static_dir()), launch_folder() / "static")
    pages = Middleware(PageMiddleware, files=files, base=base, connect_early=not guard.rules.oidc)
    https = guard.rules.redirect_uri.startswith("https:")
    policy = Middleware(BrowserPolicy, hosts=hosts, base=base, https=https)
    return {
        "middleware": [policy, *_sign_in(guard, base), pages],
        "lifespan": _lifespan(files, page, works=not guard.read_only),
    }


def _store_path() -> Path:
    return Path(sys.argv[1]) if len(sys.argv) > 1 else Path(default_path())


def load_guard(address: str, hosts: Sequence[str]) -> access.AccessGuard:
    """Return the guard for the rules in the secrets files; raise ConfigError if they forbid this address or a host."""
    rules = access_rules.read()
    if problem := access_rules.refusal(address, hosts, rules):
        raise ConfigError(problem, fix="Configure passwords or OIDC; see docs/how-to/sign-in.md.")
    return access.AccessGuard(rules, LoginSessions(rules.session), LoginAttempts(), started=True)


def _sign_in(guard: access.AccessGuard, base: str) -> list[Middleware]:
    """Return the sign-in middleware. With OIDC Streamlit authenticates the user, and the page checks the access."""
    if guard.rules.oidc:
        return [Middleware(OidcReturn, base=base)]
    if not guard.rules.passwords:
        return []
    options: dict[str, Any] = {
        "rules": guard.rules, "sessions": guard.sessions, "attempts": guard.attempts, "base": base,
    }  # fmt: skip
    return [Middleware(LoginMiddleware, **options)]


def _lifespan(
    files: StaticFiles, page: str, *, works: bool
) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """Return the lifespan of the server. The workers run unless it only reads."""

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        path = _store_path()
        warm_up.start_warm_up(path, files, page)
        if works:
            alert_worker.start(path)
            replay_worker.start(path)
        try:
            yield
        finally:
            replay_worker.stop_all()
            alert_worker.stop_all()

    return lifespan
