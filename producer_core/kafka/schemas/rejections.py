"""Turn the exception of a serializer into the error that `send_message` raises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from producer_core.errors import InvalidMessage, NotAccepted, SchemaUnavailable
from producer_core.kafka.schemas.avro_fit import misfit

_SEND_AGAIN = (
    "Send the message again when the registry responds. Messages whose schema is cached are not affected."
)
_UNREACHABLE = frozenset({"httpx.TransportError", "httpx2.TransportError", "confluent_kafka.OAuthTokenError"})
_REGISTRY_ERROR = "confluent_kafka.SchemaRegistryError"


def not_accepted(error: Exception, serializer: Any, value: Any) -> NotAccepted:
    """Return SchemaUnavailable if the registry did not provide the schema, otherwise InvalidMessage with the place.

    An OSError counts as an unreachable registry, so that serializers of other libraries are covered.
    """
    if isinstance(error, NotAccepted):
        return error
    names = _class_names(error)
    if isinstance(error, OSError) or names & _UNREACHABLE:
        return SchemaUnavailable(
            f"The schema registry did not respond: {error or type(error).__name__}.", fix=_SEND_AGAIN
        )
    if _REGISTRY_ERROR in names:
        return _registry_error(error)
    place, reason = _place(error, serializer, value)
    if place:
        return InvalidMessage(f"At value{place}: {reason}.")
    return InvalidMessage(f"The serializer failed: {reason}.")


def _class_names(error: Exception) -> set[str]:
    """Return the names of an exception's classes, each with its top package. The classes need not be importable."""
    return {f"{one.__module__.partition('.')[0]}.{one.__name__}" for one in type(error).__mro__}


def _registry_error(error: Any) -> SchemaUnavailable:
    status, text = error.http_status_code, str(error.error_message).rstrip(".")
    if status == 404:
        return SchemaUnavailable(
            f"The schema registry has no such schema: {text}.",
            fix="Register the schema under the topic's subject, then send the message again.",
        )
    if status in (401, 403):
        return SchemaUnavailable(
            f"The schema registry refused the credentials (HTTP status {status}).",
            fix="Check schema.registry.basic.auth.user.info and the permissions of its user.",
        )
    if status in (409, 422):
        return SchemaUnavailable(
            f"The schema registry rejected the schema: {text}.",
            fix="Change the schema so that it is valid and compatible with the subject's earlier versions.",
        )
    return SchemaUnavailable(
        f"The schema registry responded with HTTP status {status}: {text}.", fix=_SEND_AGAIN
    )


def _place(error: Exception, serializer: Any, value: Any) -> tuple[str, str]:
    """Return the path to the part of the value that does not fit, and the reason; an empty path if unknown."""
    reason = str(error).rstrip(".") or type(error).__name__
    cause: Any = error.__context__
    if hasattr(cause, "absolute_path"):  # jsonschema's ValidationError
        return field_path(list(cause.absolute_path)), reason
    if (schema := getattr(serializer, "_parsed_schema", None)) is not None and "avro" in type(
        serializer
    ).__module__:
        found = misfit(value, schema, strict=bool(getattr(serializer, "_strict_allow_default", False)))
        if found is not None:
            return field_path(found.path), found.reason
    return "", reason


def field_path(steps: Sequence[Any]) -> str:
    """Return the place inside a value, as `['items'][3]['price']`."""
    return "".join(f"[{step!r:.60}]" for step in steps)
