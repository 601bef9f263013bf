"""Draw text fields whose texts the browser reports while the user types, and keeps through a cut connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import streamlit as st

from producer_core.dashboard.theme import asset

DELAY_MS = 400
"""Milliseconds without a key until the texts are reported."""
_MAX_NUMBER = 2**53


class Field(NamedTuple):
    """A text field. With one row it has a single line. `problem` is shown below it."""

    name: str
    label: str
    text: str
    rows: int = 1
    placeholder: str = ""


class Typed(NamedTuple):
    """The texts of all fields of a form, by name.

    `client` identifies the browser's page, and `number` counts its reports. `stamp` is that of the texts it started from.
    """

    form: str
    client: str
    number: int
    stamp: float
    texts: Mapping[str, str]


def draft_form(
    form: str, fields: Sequence[Field], *, stamp: float, saved: tuple[str, int], key: str
) -> Typed | None:
    """Draw the fields of the form with this name, and return the latest report of the browser, if any.

    `stamp` and `saved` (client and number) identify the texts given. The browser shows them if another client wrote them, and
    reports its own again until `saved` has them.
    """
    data = {
        "form": form,
        "fields": [field._asdict() for field in fields],
        "stamp": stamp,
        "client": saved[0],
        "number": saved[1],
        "delay": DELAY_MS,
    }
    found = _component()(
        key=key, height="content", data=data, default={"typed": None}, on_typed_change=_nothing
    )
    return _typed(found.get("typed"), {field.name for field in fields})


def _typed(found: Any, names: set[str]) -> Typed | None:
    """Return the browser's report, or None for one that is not valid."""
    try:
        texts = {str(name): text for name, text in found["texts"].items() if name in names}
        report = Typed(found["form"], found["client"], found["number"], found["stamp"], texts)
    except (KeyError, TypeError, AttributeError):
        return None
    valid = isinstance(report.form, str) and isinstance(report.client, str) and len(report.client) <= 64
    numbers = type(report.number) is int and 0 <= report.number < _MAX_NUMBER
    if not (valid and numbers and isinstance(report.stamp, int | float)):
        return None
    return report if all(isinstance(text, str) for text in texts.values()) else None


def _nothing() -> None:
    """Do nothing: Streamlit reruns the fragment after a report."""


@cache
def _component() -> Any:
    return st.components.v2.component(
        "draft_form",
        html="<div class='pc-draft-form'></div>",
        js=asset("components/draft_form.js"),
        isolate_styles=False,
    )
