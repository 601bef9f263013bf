"""The user whose action the audit log records."""

from __future__ import annotations

import getpass
import os

from producer_core._internal.actor import current_actor


def test_the_jupyterhub_user_takes_precedence_over_the_system_user(monkeypatch):
    monkeypatch.setattr(getpass, "getuser", lambda: "jovyan")
    monkeypatch.setenv("JUPYTERHUB_USER", "ann")
    assert current_actor() == "ann"

    monkeypatch.delenv("JUPYTERHUB_USER")
    assert current_actor() == "jovyan"


def test_a_user_without_a_name_is_recorded_by_its_number(monkeypatch):
    def no_name():
        raise OSError

    monkeypatch.delenv("JUPYTERHUB_USER", raising=False)
    monkeypatch.setattr(getpass, "getuser", no_name)

    assert current_actor() == str(os.getuid())
