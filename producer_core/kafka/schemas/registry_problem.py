"""Describe why a registry did not provide a schema for display."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from producer_core._internal.masking import mask_or_hide
from producer_core.errors import ProducerClosed, SchemaUnavailable
from producer_core.kafka.schemas.rejections import UnusableResponse

_LONGEST = 300
_LONGEST_TO_MASK = 4_000
NO_RESPONSE = "The schema registry does not respond."
NOT_USABLE = "The schema registry's response cannot be used."


@dataclass(frozen=True, slots=True)
class RegistryProblem:
    """A sentence. `affects_all` says that the registry would not provide another schema either."""

    text: str
    affects_all: bool = False


def problem_of(error: Exception, *, stored: bool) -> RegistryProblem:
    """Return the problem of an error of `Registry`.

    If the address is `stored` in the store, the text has the status only. Everyone who can change the store could
    otherwise read the responses of a server that only this computer reaches.
    """
    if isinstance(error, ProducerClosed):  # its client was closed because it did not respond
        return RegistryProblem(NO_RESPONSE)
    if isinstance(error, UnusableResponse) or not isinstance(error, SchemaUnavailable):
        return RegistryProblem(NOT_USABLE)
    status = getattr(error.__cause__, "http_status_code", None)
    affects_all = _affects_all(status)
    if stored:
        return RegistryProblem(_of_status(status), affects_all)
    return RegistryProblem(printable(error.what), affects_all)


def printable(text: str) -> str:
    """Return a text that may contain what a registry responded: masked, without control characters and not longer
    than 300 characters."""
    masked = mask_or_hide(text[:_LONGEST_TO_MASK])
    return "".join(one if one.isprintable() else " " for one in masked[:_LONGEST])


def _affects_all(status: Any) -> bool:
    return status == 401 or status >= 500 if _is_status(status) else True


def _of_status(status: Any) -> str:
    if not _is_status(status):
        return "The schema registry did not respond."
    if status == 404:
        return "The schema registry has no such schema."
    return f"The schema registry responded with HTTP status {status}."


def _is_status(status: Any) -> bool:
    return isinstance(status, int) and status > 0
