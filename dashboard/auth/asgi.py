"""Define the ASGI types and the base path that all middleware of the dashboard shares."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def path_prefix(base: str) -> str:
    """Return the base path as the prefix of every request path: `/shop`, or an empty string."""
    name = base.strip("/")
    return f"/{name}" if name else ""
