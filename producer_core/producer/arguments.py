"""Validate the arguments of a producer, so that a mistake raises an error with its fix."""

from __future__ import annotations

import difflib
import inspect
import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from importlib import import_module
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from producer_core._internal.topic_names import TOPIC_RULE, is_topic_name
from producer_core._internal.user_callbacks import short_repr
from producer_core.config import RetryConfig, is_setting, setting_names
from producer_core.delivery.flow_control.circuit_breaker import CircuitBreaker
from producer_core.errors import ConfigError, InvalidMessage
from producer_core.events import Hook

if TYPE_CHECKING:
    from producer_core.dlq.topics.dead_letter_topic import DeadLetterTopic


def check_callback(function: Any, name: str) -> None:
    if function is not None and not callable(function):
        raise InvalidMessage(
            f"{name}={short_repr(function)} is not a function.", fix=f"Pass a function, or leave {name} out."
        )


def check_batch(messages: Any, key_extractor: Any) -> None:
    """Raise InvalidMessage unless the argument is a collection of messages. A dict would be sent as its keys, a text as
    its characters, a frame as the names of its columns."""
    if hasattr(messages, "columns") or hasattr(messages, "column_names"):
        raise InvalidMessage(
            f"send_batch takes a list of messages, not a frame ({type(messages).__name__}).",
            fix="Use send_frame(frame, topic), which sends each row.",
        )
    if not isinstance(messages, Iterable) or isinstance(messages, str | bytes | bytearray | Mapping):
        raise InvalidMessage(
            f"send_batch takes a list of messages, not {short_repr(messages)}.",
            fix="Write [message] for a single one.",
        )
    check_callback(key_extractor, "key_extractor")


def key_of(key_extractor: Callable[[Any], Any], value: Any) -> Any:
    """Return the key of a message. An exception in the caller's function rejects only this message."""
    try:
        return key_extractor(value)
    except Exception as error:
        raise InvalidMessage(f"key_extractor failed: {short_repr(error, 80)}.") from error


def check(
    *,
    retry_config: Any,
    enable_deduplication: Any,
    dlq_max_size: Any,
    health_check_interval: Any,
    dedup_ttl: Any,
    thresholds: Any,
    store: Any,
    journal_dir: Any,
    telemetry_topic: Any,
    transactional_id: Any,
    alert_routes: Any,
    cluster_id: Any,
    transport: Any,
    journal: Any,
    tracing: Any,
    on_severe_errors: Any,
    clock: Any,
) -> None:
    """Raise ConfigError for an argument of the producer with a wrong type or range."""
    if retry_config is not None and not isinstance(retry_config, RetryConfig):
        raise ConfigError(
            f"retry_config must be a RetryConfig, not {short_repr(retry_config)}.",
            fix="For example, retry_config=RetryConfig(max_retries=3).",
        )
    if not isinstance(enable_deduplication, bool):
        raise ConfigError(f"enable_deduplication={short_repr(enable_deduplication)} is not True or False.")
    _check_number("dlq_max_size", dlq_max_size, "a whole number of messages, 1 or more", whole=True, least=1)
    _check_number("health_check_interval", health_check_interval, "a number of seconds above 0")
    _check_number("dedup_ttl", dedup_ttl, "a number of seconds above 0")
    if thresholds is not None and not isinstance(thresholds, Mapping):
        raise ConfigError(
            f"thresholds must be a dict, not {short_repr(thresholds)}.",
            fix="For example, thresholds={'latency_threshold_ms': 500}.",
        )
    for name, value in (thresholds or {}).items():
        if value is not None:  # None disables the check
            _check_number(f"thresholds[{name!r}]", value, "a number, 0 or more", least=0)
    _check_path("store", store, hint="store=None disables the store")
    _check_path("journal_dir", journal_dir, hint="leave it out for no journal")
    if telemetry_topic is not None and not is_topic_name(telemetry_topic):
        raise ConfigError(
            f"telemetry_topic={short_repr(telemetry_topic)} is not a topic name.", fix=TOPIC_RULE
        )
    if transactional_id is not None and not (isinstance(transactional_id, str) and transactional_id):
        raise ConfigError(
            f"transactional_id={short_repr(transactional_id)} is not a string.",
            fix="Pass a name, for example 'shop'.",
        )
    _check_list("alert_routes", alert_routes)
    if cluster_id is not None and not (isinstance(cluster_id, str) and cluster_id):
        raise ConfigError(
            f"cluster_id={short_repr(cluster_id)} is not the id of a cluster.",
            fix="Pass the id as a string, or leave it out: the producer asks the brokers.",
        )
    if transport is not None and not callable(transport):
        raise ConfigError(
            f"transport={short_repr(transport)} is not a function that creates a transport.",
            fix="Leave it out for Kafka, or pass transport=InMemoryTransport in tests.",
        )
    if journal is not None and not all(hasattr(journal, name) for name in _JOURNAL):
        raise ConfigError(
            f"journal={short_repr(journal)} is not a replayable input.",
            fix="For a journal on disk, pass journal_dir= with the path of a directory.",
        )
    _check_tracing(tracing)
    if on_severe_errors not in ("continue", "stop"):
        raise ConfigError(
            f"on_severe_errors={short_repr(on_severe_errors)} is not 'continue' or 'stop'.",
            fix="'stop' closes the producer after an error that needs an operator.",
        )
    check_function(clock, "clock", example="clock=time.time")


def refuse_unknown(given: Collection[str], constructor: Callable[..., None]) -> None:
    """Raise ConfigError for an argument that the constructor does not have, with the nearest argument or setting."""
    for name in given:
        raise ConfigError(
            f"ReliableKafkaProducer has no argument {name!r}.", fix=_suggestion(name, constructor)
        )


def _suggestion(name: str, constructor: Callable[..., None]) -> str:
    if is_setting(name):
        return f"It is a client setting: pass config={{{name!r}: ...}}."
    _, *own, _ = inspect.signature(constructor).parameters  # without `self` and the collected unknown ones
    settings = [setting.replace(".", "_") for setting in setting_names()]
    close = difflib.get_close_matches(name, [*own, *settings], n=1)
    if not close:
        return "See docs/reference/settings.md for the arguments, and for the settings in config."
    return f"Did you mean {close[0]}=?" if close[0] in own else f"Did you mean config={{{close[0]!r}: ...}}?"


_JOURNAL = ("ids", "lasting_id", "numbers", "pending_log", "unsettled", "close")
"""Members of a `ReplayableSource` that a producer needs."""


def _check_tracing(tracing: Any) -> None:
    """Raise ConfigError unless it is a bool or a tracer provider, ModuleNotFoundError without OpenTelemetry."""
    if tracing is False:
        return
    if tracing is not True and not callable(getattr(tracing, "get_tracer", None)):
        raise ConfigError(
            f"tracing={short_repr(tracing)} is not True, False or a tracer provider.",
            fix="Write tracing=True for OpenTelemetry's global tracer provider.",
        )
    import_module("producer_core.producer.tracing")


def circuit_breaker_of(given: Any) -> CircuitBreaker | None:
    """Return the settings of the circuit breaker; None without one. Raise ConfigError for anything else."""
    if isinstance(given, CircuitBreaker):
        return given
    if not isinstance(given, bool):
        raise ConfigError(
            f"circuit_breaker={short_repr(given)} is not True, False or a CircuitBreaker.",
            fix="Write circuit_breaker=True for the defaults.",
        )
    return CircuitBreaker() if given else None


def dead_letter_topic_of(given: Any, *, has_store: bool) -> DeadLetterTopic | None:
    """Return the dead-letter topic; None without one.

    Raise ConfigError for anything else than a name or a function, and without a store.
    """
    if given is None:
        return None
    if not has_store:
        raise ConfigError(
            "dead_letter_topic needs a store, in which dead letters wait until they are on the topic.",
            fix="Pass a store: a file on an ephemeral disk is enough, because what that disk loses is on the topic. "
            "Otherwise leave dead_letter_topic out.",
        )
    from producer_core.dlq.topics.dead_letter_topic import DeadLetterTopic  # loads the store's modules

    return given if isinstance(given, DeadLetterTopic) else DeadLetterTopic(given)


def _check_list(name: str, value: Any) -> None:
    if not isinstance(value, Iterable) or isinstance(value, str):
        raise ConfigError(f"{name} must be a list, not {short_repr(value)}.", fix=f"Write {name}=[…].")


def hooks_of(given: Any) -> tuple[Hook, ...]:
    """Return the hooks that were given to a producer. Raise ConfigError for anything that is not a Hook."""
    _check_list("hooks", given)
    hooks = tuple(given)
    for hook in hooks:
        _check_hook(hook)
    return hooks


def _check_hook(hook: Any) -> None:
    if isinstance(hook, type):
        raise ConfigError(
            f"hooks contains the class {hook.__name__}.", fix=f"Pass an instance: hooks=[{hook.__name__}()]."
        )
    if not all(callable(getattr(hook, name, None)) for name in vars(Hook) if not name.startswith("_")):
        raise ConfigError(
            f"hooks contains {short_repr(hook)}, which is not a Hook.",
            fix="Derive its class from producer_core.events.Hook and override the methods that you need.",
        )


def _check_number(
    name: str, value: Any, what: str, *, whole: bool = False, least: float | None = None
) -> None:
    good = isinstance(value, Integral if whole else Real) and not isinstance(value, bool)
    if not good or not (value > 0 if least is None else value >= least) or not value < math.inf:
        raise ConfigError(
            f"{name} must be {what}, not {short_repr(value)}.", fix="Leave it out for the default."
        )


def check_timeout(value: Any, *, optional: bool = False) -> None:
    """Raise ConfigError unless the value is a number of seconds. Infinity is valid, and None if `optional`."""
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, Real) or math.isnan(value) or value < 0:
        raise ConfigError(
            f"timeout={short_repr(value)} is not a number of seconds.", fix="For example, timeout=30."
        )


def check_function(value: Any, name: str, *, example: str) -> None:
    """Raise ConfigError unless the value can be called."""
    if not callable(value):
        raise ConfigError(f"{name}={short_repr(value)} is not a function.", fix=f"For example, {example}.")


def check_frame(frame: Any, topic: Any) -> None:
    """Raise ConfigError if the arguments of `send_frame` are in the wrong order."""
    if isinstance(frame, str) and not isinstance(topic, str):
        raise ConfigError(
            "send_frame takes the frame first, then the topic.",
            fix=f"Call send_frame(frame, {short_repr(frame)}).",
        )


def check_topic_filter(topic: Any, *, optional: bool = True) -> None:
    """Raise ConfigError unless `topic` can select dead letters: a text, or None for all topics if `optional`."""
    if not isinstance(topic, str) and not (topic is None and optional):
        every = ", or None for all topics" if optional else ""
        raise ConfigError(
            f"topic={short_repr(topic)} is not a topic name.", fix=f"Pass the name as a string{every}."
        )


def check_topic_name(topic: Any) -> None:
    """Raise ConfigError unless a topic can have this name."""
    if not is_topic_name(topic):
        raise ConfigError(f"topic={short_repr(topic)} is not a topic name.", fix=TOPIC_RULE)


def check_replay(topic: Any, max_messages: Any, timeout: Any, inconclusive: Any) -> None:
    """Raise ConfigError for an argument of a replay with a wrong type or range."""
    check_topic_filter(topic, optional=False)
    whole = isinstance(max_messages, Integral) and not isinstance(max_messages, bool)
    if max_messages is not None and not (whole and max_messages >= 0):
        raise ConfigError(
            f"max_messages must be a whole number, 0 or more, not {short_repr(max_messages)}.",
            fix="Leave it out to replay all dead letters of the topic.",
        )
    check_timeout(timeout)
    if inconclusive not in ("keep", "send"):
        raise ConfigError(
            f"inconclusive={short_repr(inconclusive)} is not 'keep' or 'send'.",
            fix="'keep' leaves dead letters that were not found on the topic; 'send' sends them and may write a second copy.",
        )


def check_malformed(topic: Any, raw: Any, code: Any, text: Any, source: Any) -> None:
    """Raise InvalidMessage for an argument of `dead_letter` with a wrong type."""
    if not isinstance(topic, str):
        raise InvalidMessage(f"{short_repr(topic, 80)} is not a topic name.", fix=TOPIC_RULE)
    if not (raw is None or isinstance(raw, bytes)):
        raise InvalidMessage(f"raw must be bytes or None, not {short_repr(raw)}.", fix="Encode it first.")
    for name, value in (("code", code), ("text", text)):
        if not isinstance(value, str):
            raise InvalidMessage(f"{name} must be a string, not {short_repr(value)}.")
    if not (source is None or isinstance(source, str)):
        raise InvalidMessage(f"source must be a string or None, not {short_repr(source)}.")


def _check_path(name: str, value: Any, *, hint: str) -> None:
    if isinstance(value, str) and ("\0" in value or value == ":memory:"):
        raise ConfigError(
            f"{name}={short_repr(value)} is not a path.", fix=f"Pass the path of a file; {hint}."
        )
    if isinstance(value, str | os.PathLike) and not os.fspath(value):
        raise ConfigError(f"{name} is empty.", fix=f"Pass a path; {hint}.")
    if isinstance(value, bytes | int | float | list | tuple | set | Mapping):
        raise ConfigError(
            f"{name}={short_repr(value)} is not a path.", fix=f"Pass a path as a string; {hint}."
        )
