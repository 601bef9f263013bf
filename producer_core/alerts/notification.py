"""The notification that a route sends, and the result of sending it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Notification:
    """One message to a receiver. A second attempt at the same message has the same `key`."""

    key: str
    status: Literal["firing", "resolved"]
    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RouteResult:
    """The result of sending a notification. `text` never contains the URL or a secret.

    `later`: the seconds that the receiver asks us to wait. `refused`: the receiver works but rejects this
    notification; the next one may succeed.
    """

    accepted: bool
    text: str
    retry_after: float | None = None
    refused: bool = False
    body: str = ""
    """The beginning of the receiver's response, shown by a test of the route. It is not stored."""
