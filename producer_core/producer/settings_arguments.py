"""Give the producer's constructor the arguments that its settings contain."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from producer_core._internal.argument_settings import pop_argument_settings
from producer_core.config import DEFAULT_SERVERS, RetryConfig, servers_and_settings
from producer_core.delivery.flow_control.circuit_breaker import CircuitBreaker

_Constructor = TypeVar("_Constructor", bound=Callable[..., None])

_BUILDERS: Mapping[str, Callable[..., Any]] = {
    "circuit_breaker": CircuitBreaker,
    "retry_config": RetryConfig,
    "thresholds": dict,
}


def with_settings_as_arguments(constructor: _Constructor) -> _Constructor:
    """Pass the arguments that are among the settings to the constructor. An argument of the call takes precedence."""
    names = list(inspect.signature(constructor).parameters)[1:]

    @functools.wraps(constructor)
    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        passed = {**dict(zip(names, args, strict=False)), **kwargs}
        servers, settings = servers_and_settings(
            passed.get("bootstrap_servers", DEFAULT_SERVERS), passed.get("config")
        )
        found = pop_argument_settings(settings)
        if found and len(args) <= len(names):
            given = {**passed, "bootstrap_servers": servers, "config": settings}
            constructor(self, **{**_arguments(found), **given})
        else:
            constructor(self, *args, **kwargs)

    return cast("_Constructor", construct)


def _arguments(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments, with the objects that their parts describe. Raise ConfigError for a part out of range."""
    return {
        name: _BUILDERS[name](**value) if name in _BUILDERS and isinstance(value, Mapping) else value
        for name, value in found.items()
    }


def check_arguments(found: Mapping[str, Any]) -> None:
    """Raise ConfigError if a part of an argument is out of range."""
    _arguments(found)
