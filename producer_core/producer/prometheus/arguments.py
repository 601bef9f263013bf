"""Validate the arguments of the endpoint, so that a mistake raises an error with its fix."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from producer_core._internal.user_callbacks import short_repr
from producer_core.errors import ConfigError
from producer_core.producer.prometheus.families import TOPICS

_LAST_PORT = (1 << 16) - 1


def check_port(port: Any) -> None:
    """Raise ConfigError unless `port` is the number of a TCP port, or 0 for a free one."""
    if not _is_whole(port) or not 0 <= port <= _LAST_PORT:
        raise ConfigError(
            f"port must be a whole number from 0 to {_LAST_PORT}, not {short_repr(port)}.",
            fix="For example, 9464; 0 chooses a free one.",
        )


def check_address(address: Any) -> None:
    """Raise ConfigError for anything but the text of an address. An empty one would be all interfaces."""
    if not isinstance(address, str) or not address or "\0" in address:
        raise ConfigError(
            f"{short_repr(address)} is not an address to listen on.",
            fix="For example, '127.0.0.1', or '0.0.0.0' for all interfaces.",
        )


def check_topics(topics: Any) -> None:
    """Raise ConfigError unless `topics` is a number of labels."""
    if not _is_whole(topics) or topics < 0:
        raise ConfigError(
            f"topics must be a whole number, 0 or more, not {short_repr(topics)}.",
            fix=f"Leave it out for {TOPICS} topics with a label of their own.",
        )


def check_producer(producer: Any, call: str) -> None:
    """Raise ConfigError unless this is an instance of a producer. `call` is an example of the right call."""
    if isinstance(producer, type) or not callable(getattr(producer, "add_statistics_listener", None)):
        raise ConfigError(
            f"{short_repr(producer)} is not a producer.",
            fix=f"Pass instances: {call}.",
        )


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)
