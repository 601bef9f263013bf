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

_CLASSES = frozenset(
    {
        "AuthorizationError",
        "AuthorizationException",
        "ClusterAuthorizationException",
        "ClusterAuthorizationFailedError",
        "CredentialRetrievalError",
        "DefaultCredentialsError",
        "DelegationTokenAuthDisabledError",
        "DelegationTokenAuthorizationException",
        "DelegationTokenAuthorizationFailedError",
        "DelegationTokenDisabledException",
        "DelegationTokenExpiredError",
        "DelegationTokenExpiredException",
        "DelegationTokenNotFoundError",
        "DelegationTokenNotFoundException",
        "DelegationTokenOwnerMismatchError",
        "DelegationTokenOwnerMismatchException",
        "DelegationTokenRequestNotAllowedError",
        "ExpiredSignatureError",
        "FetchSessionIdNotFoundError",
        "FetchSessionIdNotFoundException",
        "GroupAuthorizationException",
        "GroupAuthorizationFailedError",
        "InvalidSignatureError",
        "InvalidTokenError",
        "MissingTokenError",
        "NoCredentialsError",
        "OAuthTokenError",
        "PartialCredentialsError",
        "TokenExpiredError",
        "TopicAuthorizationException",
        "TopicAuthorizationFailedError",
        "TransactionalIdAuthorizationException",
        "TransactionalIdAuthorizationFailedError",
        "UnacceptableCredentialError",
        "UnacceptableCredentialException",
    }
)
"""The exceptions of Kafka's clients and of libraries for tokens in which the rules find such a word."""

_LAST_NAME = re.compile(r"[\w.-]{1,64}\Z")
_SENTENCES = (
    ("Failed to acquire SASL OAUTHBEARER token", re.compile(": ")),
    ("Failed to create a token", re.compile(r": [A-Za-z_ ,()-]{1,80}: ")),
    ("Failed to parse JSON token", re.compile(": error code: ")),
    ("Must supply an unexpired token", re.compile(r": now=\d")),
)
"""librdkafka's sentences about OAuth tokens, each with what follows it. A reason follows, not the token."""


def names_an_error(text: str, end: int) -> bool:
    """Whether the part of the text that ends at `end` names an error, so that a reason follows it.

    After an exception or a sentence the reason follows a colon and a space. An error code may also be a field name.
    """
    before = text[max(0, end - 128) : end]
    found = _LAST_NAME.search(before)
    name = found[0] if found else ""
    if name in CODES:
        return True
    if not text.startswith(": ", end):
        return False
    return name.rpartition(".")[2] in _CLASSES or _ends_a_sentence(before, text, end)


def _ends_a_sentence(before: str, text: str, end: int) -> bool:
    return any(
        before.endswith(start)
        and not before[-len(start) - 1 : -len(start)].isalnum()
        and rest.match(text, end) is not None
        for start, rest in _SENTENCES
    )
