"""Test password hashes and the command that prints one."""

from __future__ import annotations

import hmac

import pytest
from click.testing import CliRunner

from producer_core.cli import main
from producer_core.dashboard.auth import password
from tests.fixtures import sign_in as sign_in_fixtures
from tests.fixtures.sign_in import SECRET, settings

stored = sign_in_fixtures.stored


@pytest.mark.slow
def test_a_password_hash_is_salted_and_verifies_its_password(stored):
    assert password.verify(SECRET, stored)
    assert not password.verify(SECRET + " ", stored)
    assert SECRET not in stored and stored.startswith("scrypt$")
    assert password.hashed(SECRET) != password.hashed(SECRET)


@pytest.mark.slow
def test_no_password_verifies_against_a_missing_hash():
    assert not password.verify(SECRET, None)
    assert not password.verify("", None)


@pytest.mark.slow
@pytest.mark.parametrize("known", [True, False])
def test_a_check_hashes_once_and_compares_in_constant_time_whether_or_not_the_name_exists(
    stored, monkeypatch, known
):
    derived, compared = [], []
    derive, compare = password._ScryptHash.derive, hmac.compare_digest
    monkeypatch.setattr(
        password._ScryptHash, "derive", lambda self, text: derived.append(text) or derive(self, text)
    )
    monkeypatch.setattr(
        password.hmac, "compare_digest", lambda *both: compared.append(both) or compare(*both)
    )

    assert not password.verify("wrong horse battery", stored if known else None)
    assert len(derived) == len(compared) == 1


@pytest.mark.parametrize("short", ["", "eleven char", "x" * 2000])
def test_a_password_outside_the_length_limits_is_rejected(short):
    with pytest.raises(ValueError, match="12 to 1024 characters"):
        password.hashed(short)


def test_the_password_command_prints_a_valid_settings_line(tmp_path):
    result = CliRunner().invoke(main, ["dashboard", "password", "ada@x", "--stdin"], input=f"{SECRET}\n")

    assert result.exit_code == 0
    assert SECRET not in result.output
    found = settings(tmp_path, result.stdout)
    assert password.verify(SECRET, found.passwords["ada@x"])


def test_the_password_command_rejects_a_short_password():
    result = CliRunner().invoke(main, ["dashboard", "password", "ada", "--stdin"], input="short\n")

    assert result.exit_code == 2 and "12 to 1024 characters" in result.stderr


def test_a_password_beyond_the_length_limit_never_verifies(stored):
    assert not password.verify("x" * 1_000_000, stored)


@pytest.mark.slow
@pytest.mark.parametrize("stored_text", ["", "hunter2", "scrypt$15$8$3$é$é"])
def test_an_invalid_hash_verifies_no_password(stored_text):
    assert not password.is_hash(stored_text)
    assert not password.verify("", stored_text)


@pytest.mark.parametrize("log_n", [0, 13, 19, 64])
def test_a_hash_with_an_implausible_cost_is_rejected(stored, log_n):
    name, _, *rest = stored.split("$")

    assert password.is_hash(stored)
    assert not password.is_hash("$".join((name, str(log_n), *rest)))
