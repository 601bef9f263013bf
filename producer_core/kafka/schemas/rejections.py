"""Turn the exception of a serializer into the error that `send_message` raises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from producer_core.errors import ConfigError, InvalidMessage, NotAccepted, SchemaUnavailable
from producer_core.kafka.schemas.avro_fit import misfit

SEND_AGAIN = (
    "Send the message again when the registry responds. Messages whose schema is cached are not affected."
)
_UNREACHABLE = frozenset({"httpx.TransportError", "httpx2.TransportError", "confluent_kafka.OAuthTokenError"})
_REGISTRY_ERROR = "confluent_kafka.SchemaRegistryError"
_CLIENT = ".schema_registry_client"
_LONGEST = 500
"""Characters of a registry's response that an error quotes."""


class UnusableResponse(SchemaUnavailable):
    """The schema registry responded with something else, for example the login page of a proxy."""


def unusable_response(reason: str) -> UnusableResponse:
    """Return the error for a response that is not a registry's. The reason must not quote an address."""
    return UnusableResponse(
        f"The schema registry's response cannot be used: {reason}.",
        fix="Check that schema.registry.url is the address of the registry, and that no login page is in front of it.",
    )


def not_accepted(error: Exception, serializer: Any, value: Any, part: str = "value") -> NotAccepted:
    """Return SchemaUnavailable if the registry did not provide the schema, otherwise InvalidMessage with the place in the
    `part`, "value" or "key".

    An OSError counts as an unreachable registry, so that serializers of other libraries are covered.
    """
    if isinstance(error, NotAccepted):
        return error
    names = _class_names(error)
    if isinstance(error, OSError) or names & _UNREACHABLE:
        return SchemaUnavailable(
            f"The schema registry did not respond: {clipped(str(error)).rstrip('.') or type(error).__name__}.",
            fix=SEND_AGAIN,
        )
    if _REGISTRY_ERROR in names:
        return _registry_error(error)
    if _raised_by_client(error):
        return unusable_response(_type_of_failure(error))
    place, reason = _place(error, serializer, value)
    if place:
        return InvalidMessage(f"At {part}{place}: {reason}.")
    return InvalidMessage(f"The serializer failed: {reason}.")


def _class_names(error: Exception) -> set[str]:
    """Return the names of an exception's classes, each with its top package. The classes need not be importable."""
    return {f"{one.__module__.partition('.')[0]}.{one.__name__}" for one in type(error).__mro__}


def _raised_by_client(error: Exception) -> bool:
    """Return whether confluent-kafka's registry client raised the exception: it could not read a response."""
    step = error.__traceback__
    while step is not None:
        if step.tb_frame.f_globals.get("__name__", "").endswith(_CLIENT):
            return True
        step = step.tb_next
    return False


def _registry_error(error: Any) -> SchemaUnavailable:
    status, text = error.http_status_code, clipped(str(error.error_message)).rstrip(".")
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
        f"The schema registry responded with HTTP status {status}: {text}.", fix=SEND_AGAIN
    )


def registry_failure(error: Exception) -> Exception:
    """Return the error of a request to the registry: never InvalidMessage, because the message is not its cause.

    The text of an unknown exception is left out: it may quote a part of the address, which may have a password.
    """
    if isinstance(error, NotAccepted | ConfigError):
        return error
    found = not_accepted(error, None, None)
    return unusable_response(_type_of_failure(error)) if isinstance(found, InvalidMessage) else found


def _type_of_failure(error: Exception) -> str:
    name = type(error).__name__
    return "it is not JSON" if name == "JSONDecodeError" else name


def clipped(text: str) -> str:
    """Return the beginning of a text from the registry, which may be a page of several megabytes."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


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
