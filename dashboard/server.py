"""The server's process, from its start to its end: the door and the front before Streamlit, the watch over the store,
and the hands that carry out replays where it was given settings for that."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.middleware import Middleware

from dashboard import access, admission, carrying, warming, watching
from dashboard.back import Back
from dashboard.browser_policy import BrowserPolicy
from dashboard.door import Door
from dashboard.files import Files
from dashboard.front import Front
from dashboard.serve import launch_folder
from dashboard.sessions import Attempts, Sessions
from producer_core.errors import ConfigError
from producer_core.store import default_path


def parts() -> dict[str, Any]:
    """What the start script gives to `streamlit.App` besides the page; ConfigError where nobody may be served, or the
    file of client settings is wrong."""
    from streamlit import get_option
    from streamlit.file_util import get_static_dir

    hosts = get_option("server.allowedHosts") or ["*"]
    guard = guarded(get_option("server.address") or "0.0.0.0", hosts)  # noqa: S104
    access.keep(guard)
    carrying.given()  # a file that is wrong is said now, not at the first replay
    base = get_option("server.baseUrlPath") or ""
    files = Files(Path(get_static_dir()), launch_folder() / "static")
    front = Middleware(Front, files=files, base=base, at_once=not guard.admission.oidc)
    https = guard.admission.comes_back_to.startswith("https:")
    policy = Middleware(BrowserPolicy, hosts=hosts, base=base, https=https)
    return {"middleware": [policy, *_door(guard, base), front], "lifespan": _living(files)}


def guarded(address: str, hosts: Sequence[str]) -> access.Guard:
    """Who is let in at an address under some names, as the files of secrets say."""
    admitted = admission.read()
    if problem := admission.refusal(address, hosts, admitted):
        raise ConfigError(problem, fix="Set up a password or OIDC: see «Access» in the README.")
    return access.Guard(admitted, Sessions(admitted.session), Attempts(), started=True)


def _door(guard: access.Guard, base: str) -> list[Middleware]:
    """With OIDC it is Streamlit that knows who is signed in, so there the page asks."""
    if guard.admission.oidc:
        return [Middleware(Back, base=base)]
    if not guard.admission.passwords:
        return []
    known: dict[str, Any] = {
        "admission": guard.admission, "sessions": guard.sessions, "attempts": guard.attempts, "base": base,
    }  # fmt: skip
    return [Middleware(Door, **known)]


def _living(files: Files) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def life(_: Any) -> AsyncIterator[None]:
        path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(default_path())
        warming.warm(path, files)
        watching.watch(path)
        carrying.carry(path)
        try:
            yield
        finally:
            carrying.stop()
            watching.stop()

    return life
