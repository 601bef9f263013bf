"""Format numbers with units, and shorten names."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from producer_core._internal.plural import plural


def short(name: str, longest: int = 26) -> str:
    """Return a name that fits beside a chart; a long one keeps its beginning and its end."""
    if len(name) <= longest:
        return name
    end = longest // 3
    return f"{name[: longest - end - 1]}…{name[-end:]}"


def clipped(text: str, longest: int) -> str:
    """Return a text that ends after a whole word, with an ellipsis in place of the words left out."""
    if len(text) <= longest:
        return text
    head = text[: longest - 1]
    whole = head if text[longest - 1].isspace() else head.rpartition(" ")[0]
    return f"{(whole or head).rstrip(' ,;:')} …"


def sentence_case(text: str) -> str:
    return text[:1].upper() + text[1:]


def count(number: float | None) -> str:
    """Return a whole number with thousands separators; a dash for None."""
    return "–" if number is None else f"{number:,.0f}"


def compact(number: float | None) -> str:
    """Return a number that fits a tile: 12,480 in full, 1.25 M above a million."""
    if number is None:
        return "–"
    for limit, unit in ((1e9, " G"), (1e6, " M")):
        if abs(number) >= limit:
            return f"{number / limit:.3g}{unit}"
    return f"{number:,.0f}" if abs(number) >= 100 or number == int(number) else f"{number:,.1f}"


def percent(share: float | None) -> str:
    """Return a share as a percentage; small ones keep a significant digit, and only the whole is 100%."""
    if share is None:
        return "–"
    if 0 < share < 0.0001:
        return "< 0.01%"
    if 0.9995 <= share < 1:
        return "> 99.9%"
    return f"{100 * share:.2f}%" if share < 0.1 else f"{100 * share:.1f}%"


def retries(saved: int, given_up: int) -> str:
    """Return the definition of retry success, with its numbers."""
    total = saved + given_up
    return (
        f"Of {plural(total, 'settled message that was retried', 'settled messages that were retried')}, "
        f"{plural(saved, 'was', 'were')} acknowledged. Messages that failed without a retry are not counted."
    )


def milliseconds(seconds: float | None) -> str:
    """Return a latency in milliseconds or seconds."""
    if seconds is None:
        return "–"
    if seconds >= 10:
        return f"{seconds:.0f} s"
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{1000 * seconds:.0f} ms" if seconds >= 0.01 else f"{1000 * seconds:.1f} ms"


def rate(per_second: float | None) -> str:
    return "–" if per_second is None else f"{compact(per_second)}/s"


def size(number: float | None) -> str:
    """Return bytes in powers of 1024."""
    if number is None:
        return "–"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(number) < 1024 or unit == "GiB":
            return f"{number:,.0f} {unit}" if unit == "B" else f"{number:,.1f} {unit}"
        number /= 1024
    raise AssertionError("unreachable")


def of_limit(number: float | None, limit: float | None) -> str:
    """Return bytes, and their limit where there is one."""
    return f"{size(number)} of {size(limit)}" if limit else size(number)


class NumberChange(NamedTuple):
    """Compares a value with the previous period: text such as "↑ from 0.02%", its text alternative, and a tone."""

    text: str
    aloud: str
    tone: str


def change(
    value: float | None,
    before: float | None,
    format_: Callable[[float | None], str],
    *,
    good: int = 0,
    least: float = 0.0,
) -> NumberChange:
    """Compare a value with the previous period.

    `good` is 1 where more is better and -1 where less is better. Differences below `least` or a tenth have no tone.
    """
    if value is None or before is None:
        both = value is None and before is None
        nothing = "" if both else "no previous value" if before is None else f"before: {format_(before)}"
        return NumberChange(nothing, nothing, "")
    if format_(value) == format_(before):
        return NumberChange("unchanged", "unchanged", "")
    arrow, word = ("↑", "up") if value > before else ("↓", "down")
    matters = good and abs(value - before) >= max(least, 0.1 * abs(before))
    tone = ("better" if (value > before) == (good > 0) else "worse") if matters else ""
    return NumberChange(f"{arrow} from {format_(before)}", f"{word} from {format_(before)}", tone)
