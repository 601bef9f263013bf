"""Tell the causes of a failed SASL/OAUTHBEARER login apart: the token endpoint, the client's credentials, or the broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from confluent_kafka import KafkaError

from producer_core._internal.masking import mask_or_hide
from producer_core._internal.token_source import TOKEN_FAILED, describe_failure, is_token_failure
from producer_core.errors import TokenUnavailable

ENDPOINT_URL = "sasl.oauthbearer.token.endpoint.url"
_REFUSALS = (
    "invalid_client", "invalid_grant", "invalid_request", "invalid_scope", "unauthorized_client", "unsupported_grant_type",
)  # fmt: skip
"""The errors of RFC 6749, section 5.2, with which a token endpoint refuses a request permanently."""


def is_refusal(error: KafkaError) -> bool:
    """Return whether the token endpoint refuses the credentials, as opposed to being unreachable or overloaded.

    The text of an exception from `oauth_cb` is no evidence: the function may wrap an answer that it tries again.
    """
    from_endpoint = is_token_failure(error) and error.str().startswith(TOKEN_FAILED)
    return from_endpoint and any(refusal in error.str() for refusal in _REFUSALS)


def is_temporary(error: KafkaError) -> bool:
    """Return whether a client has no token now and requests one again in 10 seconds."""
    return is_token_failure(error) and not is_refusal(error)


def token_unavailable(error: KafkaError, settings: Mapping[str, Any]) -> TokenUnavailable:
    """Return the exception for a client without a token, with the setting to check."""
    text = mask_or_hide(describe_failure(error.str()).rstrip(". "))
    if "oauth_cb" in settings:
        return TokenUnavailable(f"{text}.", fix="Check the log for the error of oauth_cb.")
    place, reason = _endpoint(settings), text.partition(": ")[2]
    if is_refusal(error):
        return TokenUnavailable(
            f"{place} refused the credentials: {reason}.",
            fix="Check sasl.oauthbearer.client.id, sasl.oauthbearer.client.secret and sasl.oauthbearer.scope.",
        )
    return TokenUnavailable(
        f"{place} did not provide a token: {reason}.",
        fix="Check sasl.oauthbearer.token.endpoint.url, and that the endpoint is running.",
    )


def no_answer(settings: Mapping[str, Any], timeout: float) -> TokenUnavailable:
    """Return the exception for a client that connected nowhere and reported nothing: it still waits for its token.

    librdkafka repeats a request that the endpoint answers with a server error for almost a minute.
    """
    return TokenUnavailable(
        f"{_endpoint(settings)} did not provide a token within {timeout:g} s.",
        fix="Check sasl.oauthbearer.token.endpoint.url, and whether the endpoint answers with a server error.",
    )


def source_of(settings: Mapping[str, Any]) -> str:
    """Return the name of the source of a client's tokens, for a sentence."""
    return "oauth_cb" if "oauth_cb" in settings else _endpoint(settings)


def _endpoint(settings: Mapping[str, Any]) -> str:
    """Return "The token endpoint" with its address, without a user, a password or a query."""
    url = urlsplit(str(settings.get(ENDPOINT_URL, "")))
    address = f" {url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}" if url.netloc else ""
    return f"The token endpoint{address}"
