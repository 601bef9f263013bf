"""Read the base path and the headers of a request in the same way in all middleware of the dashboard."""

from __future__ import annotations

from starlette.datastructures import Headers


def path_prefix(base: str) -> str:
    """Return the base path as the prefix of every request path: `/shop`, or an empty string."""
    name = base.strip("/")
    return f"/{name}" if name else ""


def header_value(headers: Headers, name: str) -> str:
    """Return the value of a header, and the values of a repeated header joined by commas, as HTTP defines it.

    `Headers.get` returns the first value only, so a check would not see that a second one contradicts it.
    """
    return ", ".join(headers.getlist(name))
