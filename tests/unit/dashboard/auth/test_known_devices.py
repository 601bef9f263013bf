"""Test the device cookie."""

from __future__ import annotations

from producer_core.dashboard.auth import known_devices


def test_a_new_password_invalidates_the_devices_of_its_name():
    value = known_devices.issue("ada", "scrypt$old")

    assert known_devices.known(value, "ada", "scrypt$old")
    assert not known_devices.known(value, "ada", "scrypt$new")
    assert not known_devices.known(value, "bob", "scrypt$old")
    assert not known_devices.known(value, "ada", None)
