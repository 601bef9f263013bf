"""Draw the menu beside the buttons of actions that copies each as a command or as Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from producer_core.dashboard import actions
from producer_core.dashboard.actions.action_code import ActionCode
from producer_core.dashboard.components.copy_menu import CopyGroup, copy_menu


def draw(path: Path, codes: Mapping[str, ActionCode], *, key: str) -> None:
    """Draw the menu with the actions that have code, by the labels of their buttons. Users without the right to act get none."""
    groups = [CopyGroup(name, code.texts) for name, code in codes.items() if code]
    if groups and actions.may_act(path)[0]:
        copy_menu(groups, key=key)
