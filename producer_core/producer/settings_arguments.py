"""Give the producer's constructor the arguments that its settings contain."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from producer_core._internal.argument_settings import FIELDS, pop_argument_settings
from producer_core._internal.user_callbacks import short_repr
from producer_core.config import DEFAULT_SERVERS, RetryConfig, servers_and_settings
from producer_core.delivery.flow_control.circuit_breaker import CircuitBreaker
from producer_core.errors import ConfigError

_Constructor = TypeVar("_Constructor", bound=Callable[..., None])

_BUILDERS: Mapping[str, Callable[..., Any]] = {
    "circuit_breaker": CircuitBreaker,
    "retry_config": RetryConfig,
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
        name: _built(name, value) if name in _BUILDERS and isinstance(value, Mapping) else value
        for name, value in found.items()
    }


def _built(name: str, value: Mapping[str, Any]) -> Any:
    """Return the object that a mapping describes. Raise ConfigError for a part that it does not have."""
    for part in value:
        if part not in FIELDS[name]:
            raise ConfigError(
                f"{short_repr(part)} is not a setting of {name}.", fix=f"Known: {', '.join(FIELDS[name])}."
            )
    return _BUILDERS[name](**value)


def check_arguments(found: Mapping[str, Any]) -> None:
    """Raise ConfigError if a part of an argument is out of range."""
    _arguments(found)
