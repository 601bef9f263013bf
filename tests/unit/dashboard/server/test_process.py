"""Test the guard of a server process."""

from __future__ import annotations

import pytest

from producer_core.dashboard.auth import access_rules
from producer_core.dashboard.auth.access_rules import AccessRules
from producer_core.dashboard.server.process import load_guard
from producer_core.errors import ConfigError


@pytest.fixture
def rules(monkeypatch):
    def set_rules(found):
        monkeypatch.setattr(access_rules, "read", lambda: found)

    return set_rules


def test_a_local_server_starts_without_a_sign_in(rules):
    rules(AccessRules())

    guard = load_guard("127.0.0.1", ["localhost"])

    assert guard.started and not guard.rules.needs_sign_in


@pytest.mark.parametrize(("address", "hosts"), [("0.0.0.0", ["localhost"]), ("127.0.0.1", ["*"])])
def test_a_public_server_starts_only_with_a_sign_in(rules, address, hosts):
    rules(AccessRules())
    with pytest.raises(ConfigError, match="cannot be served"):
        load_guard(address, hosts)

    rules(AccessRules(passwords={"ada": ""}))
    assert load_guard(address, hosts).rules.needs_sign_in
