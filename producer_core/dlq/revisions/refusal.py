"""The reason why a dead letter cannot be edited."""

from __future__ import annotations

from typing import Literal

RefusalKind = Literal["misfit", "masked", "unreadable", "invalid", "state"]
"""`misfit`: the new value does not fit its schema. `masked`: the change concerns a masked field. `unreadable`: the value
has no fields that can be read. `invalid`: the change cannot be applied. `state`: the dead letter is not pending."""


class NotEdited(Exception):
    """This dead letter stays unchanged. The text is a sentence without content of a masked field."""

    def __init__(self, kind: RefusalKind, reason: str) -> None:
        super().__init__(reason)
        self.kind, self.reason = kind, reason
