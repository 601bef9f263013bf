"""Recognize names of errors that contain a word for a secret, so that masking shows the text after them."""

from __future__ import annotations

import re

CODES = frozenset({
    "CLUSTER_AUTHORIZATION_FAILED",
    "DELEGATION_TOKEN_AUTHORIZATION_FAILED",
    "DELEGATION_TOKEN_AUTH_DISABLED",
    "DELEGATION_TOKEN_EXPIRED",
    "DELEGATION_TOKEN_NOT_FOUND",
    "DELEGATION_TOKEN_OWNER_MISMATCH",
    "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
    "FETCH_SESSION_ID_NOT_FOUND",
    "GROUP_AUTHORIZATION_FAILED",
    "TOPIC_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "UNACCEPTABLE_CREDENTIAL",
})  # fmt: skip
"""The error codes of Kafka and librdkafka in which the masking rules find a word for a secret."""

_FAILED = re.compile(r"[A-Z][A-Z0-9_]{0,60}_FAILED")
_CLASS = re.compile(r"[A-Za-z0-9_.]{0,120}[a-z](?:Exception|Error)")
_LAST_NAME = re.compile(r"[\w.-]{1,64}\Z")
_SENTENCE = re.compile(
    r"\b(?:failed to (?:acquire|create|parse)(?: [\w-]{1,40}){1,3}|must supply an unexpired token)\Z", re.I
)
"""How librdkafka's sentences about OAuth tokens begin. The reason follows a colon, not the token."""


def is_error_name(name: str) -> bool:
    """Whether a name is an error code or an exception: TOPIC_AUTHORIZATION_FAILED, TopicAuthorizationException."""
    return name in CODES or any(pattern.fullmatch(name) for pattern in (_FAILED, _CLASS))


def names_an_error(text: str, end: int) -> bool:
    """Whether the part of the text that ends at `end` names an error, so that a reason follows it."""
    before = text[max(0, end - 128) : end]
    name = _LAST_NAME.search(before)
    return (name is not None and is_error_name(name[0])) or _SENTENCE.search(before) is not None
