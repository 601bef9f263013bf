"""Write the fields of a log line into its text too, because Python's default handler prints nothing else."""

from __future__ import annotations

from typing import Any

from producer_core._internal.join_names import join_names


def with_fields(text: str, /, **fields: Any) -> dict[str, Any]:
    """Return the arguments of a log call: `text: topic=orders, error=...`, with the fields in `extra` as well.

    Use it as `logger.warning(**with_fields("store unavailable", error=str(error)))`. The text leaves out empty fields.
    """
    details = ", ".join(
        f"{name}={_shown(value)}" for name, value in fields.items() if value not in (None, "")
    )
    return {"msg": f"{text}: {details}" if details else text, "extra": fields}


def _shown(value: object) -> str:
    text = join_names(map(str, value)) if isinstance(value, list) else str(value)
    return " ".join(text.splitlines())
