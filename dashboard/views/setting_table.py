"""Draw a table of settings of a store, each with its meaning, its value and its default."""

from __future__ import annotations

from collections.abc import Sequence

from producer_core.dashboard.components import live_table
from producer_core.dashboard.components.live_table import Column, TablePart, TableRow
from producer_core.dashboard.queries.settings import StoreSetting
from producer_core.dashboard.views import common
from producer_core.dashboard.wording import settings as settings_wording


def draw(title: str, key: str, values: Sequence[StoreSetting]) -> None:
    common.heading(title)
    columns = (Column("Setting"), Column("Meaning"), Column("Value"), Column("Default"))
    live_table.live_table(columns, [_row(one) for one in values], key=key, alt=title)


def _row(one: StoreSetting) -> TableRow:
    return TableRow(
        one.name,
        (
            TablePart(one.name, "mono"),
            settings_wording.MEANINGS[one.name],
            [
                TablePart(settings_wording.setting(one.name, one.value), "strong"),
                *([TablePart("set", "badge")] if one.changed else []),
            ],
            TablePart(settings_wording.setting(one.name, one.default), "small"),
        ),
    )
