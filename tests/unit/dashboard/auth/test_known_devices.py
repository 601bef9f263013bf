"""Test the device cookie."""

from __future__ import annotations

import hmac

import pytest

from producer_core.dashboard.auth import known_devices


def test_a_new_password_invalidates_the_devices_of_its_name():
    value = known_devices.issue("ada", "scrypt$old")

    assert known_devices.known(value, "ada", "scrypt$old")
    assert not known_devices.known(value, "ada", "scrypt$new")
    assert not known_devices.known(value, "bob", "scrypt$old")
    assert not known_devices.known(value, "ada", None)


def test_two_cookies_of_one_name_are_two_devices():
    first, second = (known_devices.issue("ada", "scrypt$old") for _ in range(2))

    devices = {known_devices.known(value, "ada", "scrypt$old") for value in (first, second)}

    assert len(devices) == 2 and "" not in devices


@pytest.mark.parametrize("value", ["", ".", "number", "number.", ".signature", "é.é", "x" * 100_000])
def test_a_malformed_cookie_is_not_a_known_device(value):
    assert known_devices.known(value, "ada", "scrypt$old") == ""


def test_the_signature_of_a_device_is_compared_in_constant_time(monkeypatch):
    compared, compare = [], hmac.compare_digest
    monkeypatch.setattr(
        known_devices.hmac, "compare_digest", lambda *both: compared.append(both) or compare(*both)
    )

    assert known_devices.known("number.forged", "ada", "scrypt$old") == ""
    assert len(compared) == 1
