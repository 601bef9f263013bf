"""Convert an Arrow table to the caller's kind of frame."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, get_args

from producer_core.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow

Kind = Literal["pandas", "polars", "arrow"]


def make_frame(table: pyarrow.Table, kind: Kind | None = None) -> Any:
    """Return the table as a frame. None selects pandas if installed, else polars, else the Arrow table."""
    wanted = kind or _installed()
    if wanted not in get_args(Kind):
        raise ConfigError(
            f"{wanted!r} is not a kind of frame.", fix=f"Use one of {', '.join(get_args(Kind))}."
        )
    if wanted == "arrow":
        return table
    if find_spec(wanted) is None:
        raise ConfigError(
            f"{wanted} is not installed.", fix=f"Run pip install {wanted}, or use kind='arrow'."
        )
    if wanted == "pandas":
        return table.to_pandas()
    import polars  # type: ignore[import-not-found,unused-ignore]  # not one of our dependencies

    return polars.from_arrow(table)


def _installed() -> Kind:
    if find_spec("pandas"):
        return "pandas"
    return "polars" if find_spec("polars") else "arrow"
