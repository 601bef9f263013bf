"""Access: who looks at the dashboard, and whether that person may act."""

from __future__ import annotations

import getpass
import os

from producer_core.errors import ProducerError


class NotAllowed(ProducerError):
    """Who is signed in may look, not act."""


def user() -> str:
    """The signed-in name; where nobody has to sign in, the operating system's."""
    return _of_the_system()


def may_act() -> tuple[bool, str]:
    """Whether the person may act, and if not why, in a sentence for the page."""
    return True, ""


def actor() -> str:
    """The name that an act carries into the audit; NotAllowed where this person may not act.

    Every act asks it, whatever the buttons on the page looked like.
    """
    allowed, reason = may_act()
    if not allowed:
        raise NotAllowed(reason)
    return user()


def _of_the_system() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
