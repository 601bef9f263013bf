"""The routes of notifications: callbacks, webhooks and Alertmanagers, and where their URLs come from."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast, get_args

from producer_core._internal.user_callbacks import short_repr
from producer_core.alerts.notification import Notification, RouteResult
from producer_core.alerts.rule_set import RouteSettings, RuleSet
from producer_core.errors import ConfigError
from producer_core.events import Severity

WEBHOOK = "PRODUCER_CORE_ALERT_WEBHOOK"
"""Contains the URL of a webhook, so that no rules file is needed. `…_FILE` names a file with the URL instead;
`…_TOKEN` and `…_TOKEN_FILE` give its bearer token."""
ALERTMANAGER = "PRODUCER_CORE_ALERTMANAGER"
"""Contains the URL of an Alertmanager, in the same way."""
NAMED = (("webhook", WEBHOOK), ("alertmanager", ALERTMANAGER))
"""The routes of the environment: their names, which are also their kinds, and variables."""

SEVERITIES: tuple[Severity, ...] = get_args(Severity)


class Route(Protocol):
    """A destination of notifications. `send` may block for `timeout` seconds and never raises."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def severities(self) -> tuple[str, ...]: ...
    @property
    def heartbeat(self) -> float: ...
    @property
    def timeout(self) -> float: ...

    def send(self, notification: Notification) -> RouteResult: ...


AlertFunction = Callable[[Mapping[str, Any]], object]
"""A user's function that gets an Alertmanager payload."""


class _Calls:
    """Runs one call at a time, each on its own thread, so that a call that never returns blocks nothing else."""

    def __init__(self) -> None:
        self._running: threading.Thread | None = None

    def call(self, function: AlertFunction, payload: Mapping[str, Any], timeout: float) -> RouteResult:
        if self._running is not None and self._running.is_alive():
            return RouteResult(False, "the previous call has not returned yet")
        answers: list[RouteResult] = []
        self._running = threading.Thread(
            target=lambda: answers.append(_called(function, payload)), name="alert-callback", daemon=True
        )
        self._running.start()
        self._running.join(timeout)
        if self._running.is_alive():
            return RouteResult(False, f"it did not return within {timeout:g} s")
        return answers[0]


def _called(function: AlertFunction, payload: Mapping[str, Any]) -> RouteResult:
    try:
        function(payload)
    except BaseException as error:  # noqa: BLE001  # a user's function on its own thread, which is all it can end
        return RouteResult(False, f"it raised {type(error).__name__}", refused=True)
    return RouteResult(True, "called")


@dataclass(frozen=True, slots=True)
class Callback:
    """Calls a function with an Alertmanager payload, on its own thread.

    Only one of the processes that have a callback of this name calls it. An exception, or a call that does not return
    within `timeout` seconds, is a failure and is retried. The store identifies the route by its `name`, so use the
    same name in every run. Raises ConfigError for an invalid argument.
    """

    name: str
    function: AlertFunction
    severities: tuple[str, ...] = ("critical", "warning", "info")
    heartbeat: float = 0.0
    timeout: float = 10.0
    kind: str = "callback"
    _calls: _Calls = field(default_factory=_Calls, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise _invalid("name", self.name, 'a string: Callback("pager", function)')
        if not callable(self.function):
            raise _invalid("function", self.function, 'a function: Callback("pager", function)')
        given = self.severities
        several = isinstance(given, Sequence) and not isinstance(given, str)
        if not several or not all(severity in SEVERITIES for severity in given):
            raise _invalid("severities", given, f"a tuple with names of {', '.join(SEVERITIES)}")
        for name, value, lowest in (
            ("timeout", self.timeout, "above 0"),
            ("heartbeat", self.heartbeat, "0 or more"),
        ):
            if not _is_number(value) or value < 0 or (value == 0 and lowest == "above 0"):
                raise _invalid(name, value, f"a number of seconds, {lowest}")

    def send(self, notification: Notification) -> RouteResult:
        return self._calls.call(self.function, notification.payload, self.timeout)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _invalid(name: str, value: object, expected: str) -> ConfigError:
    return ConfigError(f"{name}= of a Callback is {short_repr(value)}.", fix=f"Pass {expected}.")


def given_routes(given: Sequence[Route | AlertFunction]) -> tuple[Route, ...]:
    """Return the routes that were given to a producer. A plain function becomes a callback with the function's name."""
    routes = tuple(_route_of(item) for item in given)
    names = [route.name for route in routes]
    if duplicates := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"Two alert routes are named {duplicates[0]!r}.", fix="Give each a unique name.")
    return routes


def _route_of(item: Route | AlertFunction) -> Route:
    if hasattr(item, "send"):
        return cast("Route", item)
    name = getattr(item, "__name__", "")
    if not callable(item) or not name.isidentifier():
        raise ConfigError(
            "An alert route must be a named function or a Callback.",
            fix='The store identifies a route by its name: alert_routes=[Callback("pager", function)].',
        )
    return Callback(name, item)


def routes_of(rule_set: RuleSet) -> tuple[Route, ...]:
    """Return the routes of the rule set whose URLs this process has, and those of the environment."""
    found = [_route(settings, rule_set.path) for settings in rule_set.routes]
    named = [_route(_of_environment(kind, variable), None) for kind, variable in NAMED]
    return tuple(route for route in (*found, *named) if route is not None)


def _of_environment(kind: str, variable: str) -> RouteSettings:
    return RouteSettings(
        kind,
        kind=kind,
        url_env=variable,
        url_file=os.environ.get(f"{variable}_FILE", ""),
        token_env=f"{variable}_TOKEN",
        token_file=os.environ.get(f"{variable}_TOKEN_FILE", ""),
    )


def missing_addresses(rule_set: RuleSet) -> tuple[RouteSettings, ...]:
    """Return the routes of the rule set whose URLs this process lacks."""
    return tuple(settings for settings in rule_set.routes if _route(settings, rule_set.path) is None)


def _route(settings: RouteSettings, rules_file: Path | None) -> Route | None:
    url = _secret(settings.url_env, settings.url_file, rules_file)
    if not url:
        return None
    from producer_core.alerts.alertmanager import Alertmanager
    from producer_core.alerts.webhook import Webhook

    made = Alertmanager if settings.kind == "alertmanager" else Webhook
    return made(
        settings.name,
        url=url,
        token=_secret(settings.token_env, settings.token_file, rules_file),
        severities=settings.severities,
        timeout=settings.timeout,
        heartbeat=settings.heartbeat,
    )


def url_source(route: str, rule_set: RuleSet) -> str:
    """Return where the URL of a route comes from: the name of a variable, or the path of a file."""
    named = [_of_environment(kind, variable) for kind, variable in NAMED]
    settings = next(settings for settings in (*rule_set.routes, *named) if settings.name == route)
    if settings.url_env and os.environ.get(settings.url_env, "").strip():
        return settings.url_env
    return str(_path(settings.url_file, rule_set.path if settings in rule_set.routes else None))


def _path(file: str, rules_file: Path | None) -> Path:
    return Path(file) if rules_file is None else rules_file.parent / file


def _secret(variable: str, file: str, rules_file: Path | None) -> str:
    """Return the value from the environment, or else from a file. A relative path starts at the rules file's folder."""
    if variable and (value := os.environ.get(variable, "").strip()):
        return value
    if not file:
        return ""
    path = _path(file, rules_file)
    try:
        return path.read_text().strip()
    except OSError as error:
        raise ConfigError(
            f"The file {path} with the URL or the token of a route cannot be read: {error.strerror or error}.",
            fix="Correct the path, or let this user read the file.",
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(
            f"The file {path} with the URL or the token of a route is not text.",
            fix="It must contain only the URL or the token.",
        ) from None
