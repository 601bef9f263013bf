"""Explain why the Kafka client rejects the value of a setting, and which values are valid."""

from __future__ import annotations

import numbers
import os
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from producer_core._internal.compression_choice import AUTO, COMPRESSION_SETTING
from producer_core._internal.join_names import join_names
from producer_core._internal.librdkafka import refusal
from producer_core._internal.user_callbacks import short_repr

CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "acks": ("all", "0", "1"),
        "broker.address.family": ("any", "v4", "v6"),
        "client.dns.lookup": ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
        "compression.type": ("none", "gzip", "snappy", "lz4", "zstd"),
        "partitioner": (
            "murmur2_random", "murmur2", "consistent_random", "consistent", "fnv1a_random", "fnv1a", "random",
        ),
        "queuing.strategy": ("fifo", "lifo"),
        "security.protocol": ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"),
        "ssl.endpoint.identification.algorithm": ("https", "none"),
    }
)  # fmt: skip
"""The valid values of settings with a few values, which librdkafka's messages do not list."""

_WHOLE = re.compile(r"[+-]?\d{1,100}")
_RANGE = re.compile(r"-?\d+\.\.-?\d+")
_PROPERTY = re.compile(r' for (?:configuration property )?"[^"]*"')
_LARGEST = 2**31 - 1
_NOT_FINITE = ("nan", "inf", "-inf")
_BOOLEAN = "Use True or False."


class Rejection(NamedTuple):
    """Why a value is not valid, and what to write instead; `fix` is empty if that is not known."""

    reason: str
    fix: str


def rejection(name: str, value: Any) -> Rejection | None:
    """Return why the client rejects, or would misread, this value of a property; None for a valid one."""
    text = text_of(value)
    if text is None and isinstance(value, str):
        return Rejection(f"{short_repr(value)} contains NUL or an unpaired surrogate", "Remove it.")
    if text is None:
        return Rejection(f"{short_repr(value)} is not a string or a number", _expected(name))
    if isinstance(value, numbers.Real) and text in _NOT_FINITE:
        return Rejection(f"{value!r} is not a number that the client accepts", "Use a finite number.")
    reason = refusal(name, text)
    if reason is None and not _overflows(name, text):
        return None
    if choices := _choices(name):
        return Rejection(f"{short_repr(value)} is not valid", _one_of(choices))
    if limits := _limits(name):
        return _outside(value, text, limits)
    if reason is not None and _is_boolean(name):
        return Rejection(f"{short_repr(value)} is not valid", _BOOLEAN)
    return Rejection(_PROPERTY.sub("", reason or "Invalid value").strip().rstrip("."), "")


def text_of(value: Any) -> str | None:
    """Return a value as the client receives it; None if it has no such form.

    Texts, numbers, booleans and paths have one.
    """
    if isinstance(value, bool):
        return str(value).lower()
    numpy_scalar = getattr(value, "shape", None) == ()  # numpy's booleans are not numbers
    if not (isinstance(value, str | numbers.Number | os.PathLike) or numpy_scalar):
        return None
    try:
        text = str(value)
        text.encode()
    except ValueError:  # an int of more than 4,300 digits, or an unpaired surrogate
        return None
    return None if "\0" in text else text


def _expected(name: str) -> str:
    if choices := _choices(name):
        return _one_of(choices)
    if limits := _limits(name):
        return f"Use a number in the range {limits}."
    return _BOOLEAN if _is_boolean(name) else "Use a string."


def _choices(name: str) -> tuple[str, ...]:
    """Return the valid values of a setting, the producer's own included; none for a setting with many values."""
    choices = CHOICES.get(name, ())
    return (*choices, AUTO) if name == COMPRESSION_SETTING else choices


def _one_of(choices: tuple[str, ...]) -> str:
    return f"Valid: {join_names(choices, 'or')}."


def _is_boolean(name: str) -> bool:
    return (refusal(name, "x") or "").startswith("Expected bool")


def _overflows(name: str, text: str) -> bool:
    """Whether a number has more than 32 bits, which librdkafka would misread."""
    whole = _WHOLE.fullmatch(text) is not None
    return whole and not -_LARGEST - 1 <= int(text) <= _LARGEST and refusal(name, "x") is not None


def _limits(name: str) -> str | None:
    """Return the range of a numeric property; None for a property of another type."""
    if refusal(name, "x") is None:
        return None
    found = _RANGE.search(refusal(name, str(_LARGEST)) or refusal(name, str(-_LARGEST - 1)) or "")
    if found:
        return found[0]
    return f"up to {_LARGEST}" if refusal(name, str(_LARGEST)) is None else None


def _outside(value: Any, text: str, limits: str) -> Rejection:
    if _WHOLE.fullmatch(text):
        return Rejection(f"{text} is outside the allowed range {limits}", "Use a number in this range.")
    return Rejection(f"{short_repr(value)} is not valid", f"Use a number in the range {limits}.")
