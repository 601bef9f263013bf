"""A route: how people are told, and what came back."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

from producer_core.alerts.notification import Notification, RouteResult
from producer_core.alerts.rule_set import RouteSettings, RuleSet
from producer_core.errors import ConfigError

WEBHOOK = "PRODUCER_CORE_ALERT_WEBHOOK"
"""The address of a webhook for who needs no file of rules. `…_FILE` names a file with the address instead, `…_TOKEN`
and `…_TOKEN_FILE` give its bearer token."""


class Route(Protocol):
    """Somewhere that people are told. `tell` may block for `patience` seconds and never raises."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def severities(self) -> tuple[str, ...]: ...
    @property
    def heartbeat(self) -> float: ...
    @property
    def patience(self) -> float: ...

    def tell(self, notification: Notification) -> RouteResult: ...


Told = Callable[[Mapping[str, Any]], object]
"""A function of yours; it gets an Alertmanager payload."""


class _Calls:
    """One call at a time, each on a thread of its own, so that one that never returns holds up nothing else."""

    def __init__(self) -> None:
        self._running: threading.Thread | None = None

    def call(self, function: Told, payload: Mapping[str, Any], patience: float) -> RouteResult:
        if self._running is not None and self._running.is_alive():
            return RouteResult(False, "the call before has not come back yet")
        answers: list[RouteResult] = []
        self._running = threading.Thread(
            target=lambda: answers.append(_called(function, payload)), name="alert-callback", daemon=True
        )
        self._running.start()
        self._running.join(patience)
        if self._running.is_alive():
            return RouteResult(False, f"it did not come back within {patience:g} s")
        return answers[0]


def _called(function: Told, payload: Mapping[str, Any]) -> RouteResult:
    try:
        function(payload)
    except BaseException as error:  # noqa: BLE001  # a user's function, on a thread of its own: all it can end is that
        return RouteResult(False, f"it raised {type(error).__name__}", refused=True)
    return RouteResult(True, "called")


@dataclass(frozen=True, slots=True)
class Callback:
    """Calls a function of yours with an Alertmanager payload, on a thread of its own.

    Of all processes that have a callback of this name, one is called. What the function raises is a failure, and so
    is a call that does not come back within `patience` seconds: it is called again later. Its `name` is what the
    store remembers, so keep it from run to run.
    """

    name: str
    function: Told
    severities: tuple[str, ...] = ("critical", "warning", "info")
    heartbeat: float = 0.0
    patience: float = 10.0
    kind: str = "callback"
    _calls: _Calls = field(default_factory=_Calls, init=False, repr=False, compare=False)

    def tell(self, notification: Notification) -> RouteResult:
        return self._calls.call(self.function, notification.payload, self.patience)


def given_routes(given: Sequence[Route | Told]) -> tuple[Route, ...]:
    """Routes as they were given to a producer; a bare function is a callback of its own name."""
    routes = tuple(_route_of(item) for item in given)
    names = [route.name for route in routes]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"Two alert routes are called {twice[0]!r}.", fix="Give each a name of its own.")
    return routes


def _route_of(item: Route | Told) -> Route:
    if hasattr(item, "tell"):
        return cast("Route", item)
    name = getattr(item, "__name__", "")
    if not callable(item) or not name.isidentifier():
        raise ConfigError(
            "An alert route is a function with a name, or a Callback.",
            fix='The store remembers it by its name: alert_routes=[Callback("pager", function)].',
        )
    return Callback(name, item)


def routes_of(book: RuleSet) -> tuple[Route, ...]:
    """The routes of a book whose addresses this process has, and the one of the environment."""
    found = [route for settings in book.routes if (route := _route(settings, book.path)) is not None]
    named = RouteSettings(
        "webhook",
        url_env=WEBHOOK,
        url_file=os.environ.get(f"{WEBHOOK}_FILE", ""),
        token_env=f"{WEBHOOK}_TOKEN",
        token_file=os.environ.get(f"{WEBHOOK}_TOKEN_FILE", ""),
    )
    from_environment = _route(named, None)
    return (*found, *([from_environment] if from_environment is not None else []))


def missing_addresses(book: RuleSet) -> tuple[RouteSettings, ...]:
    """Routes of the book whose address is not to be had in this process."""
    return tuple(settings for settings in book.routes if _route(settings, book.path) is None)


def _route(settings: RouteSettings, rules_file: Path | None) -> Route | None:
    url = _secret(settings.url_env, settings.url_file, rules_file)
    if not url:
        return None
    from producer_core.alerts.webhook import Webhook

    return Webhook(
        settings.name,
        url=url,
        token=_secret(settings.token_env, settings.token_file, rules_file),
        severities=settings.severities,
        patience=settings.timeout,
        heartbeat=settings.heartbeat,
    )


def _secret(variable: str, file: str, rules_file: Path | None) -> str:
    """From the environment, else from a file; a relative name is looked for beside the file of rules."""
    if variable and (value := os.environ.get(variable, "").strip()):
        return value
    if not file:
        return ""
    path = Path(file) if rules_file is None else rules_file.parent / file
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"A route's file {path.name} cannot be read: {type(error).__name__}.",
            fix="It holds the address, or the token, and nothing else.",
        ) from None
