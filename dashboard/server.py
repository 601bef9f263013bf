"""The server's process, from its start to its end: the door before Streamlit, the watch over the store, and the hands
that carry out replays where it was given settings for that."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.middleware import Middleware

from dashboard import access, admission, carrying, watching
from dashboard.door import Door
from dashboard.sessions import Attempts, Sessions
from producer_core.errors import ConfigError
from producer_core.store import default_path


def parts() -> dict[str, Any]:
    """What the start script gives to `streamlit.App` besides the page; ConfigError where nobody may be served, or the
    file of client settings is wrong."""
    from streamlit import get_option

    guard = guarded(get_option("server.address") or "0.0.0.0", get_option("server.allowedHosts") or ["*"])  # noqa: S104
    access.keep(guard)
    carrying.given()  # a file that is wrong is said now, not at the first replay
    return {"middleware": _door(guard, get_option("server.baseUrlPath") or ""), "lifespan": _life}


def guarded(address: str, hosts: Sequence[str]) -> access.Guard:
    """Who is let in at an address under some names, as the files of secrets say."""
    admitted = admission.read()
    if problem := admission.refusal(address, hosts, admitted):
        raise ConfigError(problem, fix="Set up a password or OIDC: see «Access» in the README.")
    return access.Guard(admitted, Sessions(admitted.session), Attempts(), started=True)


def _door(guard: access.Guard, base: str) -> list[Middleware]:
    """With OIDC it is Streamlit that knows who is signed in, so there the page asks."""
    if not guard.admission.passwords:
        return []
    known: dict[str, Any] = {
        "admission": guard.admission, "sessions": guard.sessions, "attempts": guard.attempts, "base": base,
    }  # fmt: skip
    return [Middleware(Door, **known)]


@asynccontextmanager
async def _life(_: Any) -> AsyncIterator[None]:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(default_path())
    watching.watch(path)
    carrying.carry(path)
    try:
        yield
    finally:
        carrying.stop()
        watching.stop()
