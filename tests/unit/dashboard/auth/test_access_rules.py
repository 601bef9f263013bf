"""Test the access rules: the settings, their mistakes, and the addresses that need a sign-in."""

from __future__ import annotations

import tomllib

import pytest

from producer_core.dashboard.auth import access_rules, password
from producer_core.dashboard.auth.access_rules import AccessRules
from producer_core.errors import ConfigError
from tests.fixtures import sign_in as sign_in_fixtures
from tests.fixtures.sign_in import OIDC, settings
from tests.support import ROOT

stored = sign_in_fixtures.stored


@pytest.mark.parametrize(
    "wrong",
    ["", "hunter2", "scrypt$2$8$1$YWJj$YWJj", "md5$15$8$3$YWJjZGVmZ2hpamtsbW5vcA==$YQ==", "scrypt$$$$$"],
)
def test_an_invalid_hash_in_the_settings_raises_a_config_error(wrong, tmp_path):
    assert not password.is_hash(wrong)
    with pytest.raises(ConfigError, match="producer-core dashboard password ada"):
        settings(tmp_path, f'[dashboard.passwords]\nada = "{wrong}"')


def test_without_settings_no_sign_in_is_required_and_every_user_can_act(tmp_path):
    found = access_rules.read([tmp_path / "secrets.toml"])

    assert not found.needs_sign_in
    assert found.can_view("anybody") and found.can_act("anybody")


def test_read_only_users_are_configured_by_name_or_by_a_list_of_actors(tmp_path):
    some = settings(tmp_path, '[dashboard]\nread_only = ["bob", "*@agency.example"]')
    others = settings(tmp_path, '[dashboard]\nmay_act = ["ada"]')
    all_ = settings(tmp_path, '[dashboard]\nread_only = ["*"]')

    assert [some.can_act(name) for name in ("ada", "bob", "eve@Agency.example")] == [True, False, False]
    assert [others.can_act(name) for name in ("Ada", "bob")] == [True, False]
    assert not all_.can_act("ada")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[dashboard]\nread_onyl = ['bob']", "unknown key: 'read_onyl'"),
        ("[dashboard]\nread_only = 'bob'", "must be a list of names"),
        ("[dashboard]\nsession_hours = 0", "number of hours"),
        ("[dashboard", "cannot be read"),
        ("dashboard = 1", "must be a table"),
        ("[auth]\nclient_id = 'x'", "must contain may_see"),
        ("[auth]\nclient_id = 'x'\n[dashboard]\nmay_see = ['*']", "no redirect_uri"),
        (OIDC.replace("client_secret", "client_secrte"), r"\[auth\] in secrets.toml has no client_secret"),
        (OIDC.replace('client_id = "c"', "[auth.okta]\nclient_id = 'c'\n[auth.entra]"), "has no client_id"),
        (OIDC.replace("/oauth2callback", ""), "must end in /oauth2callback"),
        (OIDC.replace("k" * 32, "hunter2"), "fewer than 32 characters"),
    ],
)
def test_a_mistake_in_the_settings_raises_a_config_error_that_names_it(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        settings(tmp_path, text)


def test_passwords_and_oidc_cannot_be_combined(tmp_path, stored):
    with pytest.raises(ConfigError, match="Keep one"):
        settings(
            tmp_path,
            f'[auth]\nx = "y"\n[dashboard]\nmay_see = ["*"]\n[dashboard.passwords]\nada = "{stored}"',
        )


def test_a_provider_may_have_a_name(tmp_path):
    named = OIDC.replace('client_id = "c"', '[auth.okta]\nclient_id = "c"')

    assert settings(tmp_path, OIDC).provider is None
    found = settings(tmp_path, named)
    assert (found.oidc, found.provider) == (True, "okta")
    assert found.redirect_uri == "https://dash.example/oauth2callback"


@pytest.mark.parametrize("place", ["127.0.0.1", "localhost", "::1", "127.1.2.3"])
def test_a_loopback_address_needs_no_sign_in(place):
    assert access_rules.refusal(place, ("localhost",), AccessRules()) is None


@pytest.mark.parametrize(
    ("address", "hosts"), [("0.0.0.0", ()), ("::", ()), ("192.168.1.5", ()), ("127.0.0.1", ("dash.example",)), ("127.0.0.1", ("*",))]
)  # fmt: skip
def test_other_addresses_are_refused_until_a_sign_in_is_configured(address, hosts, stored):
    assert "cannot be served" in access_rules.refusal(address, hosts, AccessRules())
    assert access_rules.refusal(address, hosts, AccessRules(passwords={"ada": stored})) is None
    assert access_rules.refusal(address, hosts, AccessRules(oidc=True)) is None


def test_the_rules_never_print_password_hashes(stored):
    assert stored not in repr(AccessRules(passwords={"ada": stored}))


def test_the_settings_in_the_documentation_are_valid(tmp_path):
    page = (ROOT / "docs" / "how-to" / "sign-in.md").read_text()
    blocks = [part.split("```")[0] for part in page.split("```toml\n")[1:]]

    by_password, by_oidc = (tomllib.loads(block) for block in blocks)
    assert password.is_hash(by_password["dashboard"]["passwords"]["ada"])
    assert settings(tmp_path, blocks[0]).needs_sign_in
    # the placeholder in the documentation is not accepted
    with pytest.raises(ConfigError, match="openssl rand -hex 32"):
        settings(tmp_path, blocks[1])
    valid = blocks[1].replace(by_oidc["auth"]["cookie_secret"], "k" * 64)
    assert not settings(tmp_path, valid).can_view("stranger@elsewhere.example")
