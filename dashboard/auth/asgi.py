"""What every piece of ASGI between Streamlit and a browser needs: the types of the protocol, and the path of the app."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def rooted(base: str) -> str:
    """The path below which the app is served, as the beginning of an address: `/shop`, or nothing."""
    name = base.strip("/")
    return f"/{name}" if name else ""
