"""Test sign-in sessions and the delay after failed attempts."""

from __future__ import annotations

from producer_core.dashboard.auth.sessions import LoginAttempts, LoginSessions
from tests.fixtures.sign_in import Clock


def test_a_session_ends_after_its_length_and_on_sign_out():
    clock = Clock(0.0)
    sessions = LoginSessions(3600, clock=clock)
    ada, bob = sessions.begin("ada"), sessions.begin("bob")

    assert (sessions.name(ada), sessions.name(bob), sessions.name("guessed"), sessions.name(None)) == (
        "ada", "bob", None, None,
    )  # fmt: skip
    sessions.end(bob)
    assert sessions.name(bob) is None
    clock.now = 3599.0
    assert sessions.name(ada) == "ada"
    clock.now = 3600.0
    assert sessions.name(ada) is None


def test_the_delay_of_an_address_doubles_with_each_failed_attempt():
    clock = Clock(0.0)
    attempts = LoginAttempts(clock=clock)
    waits = []
    for number in range(12):
        clock.now += attempts.wait(f"name-{number}", "10.0.0.9")
        attempts.failed(f"name-{number}", "10.0.0.9")
        waits.append(attempts.wait("another", "10.0.0.9"))

    assert waits == [0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    assert attempts.wait("another", "10.0.0.8") == 0


def test_failed_attempts_of_other_addresses_do_not_delay_the_user():
    clock = Clock(0.0)
    attempts = LoginAttempts(clock=clock)
    for number in range(1000):
        attempts.failed("ada", f"10.0.{number % 200}.1")

    assert attempts.wait("ada", "10.0.7.1") == LoginAttempts.MAX_DELAY
    assert attempts.wait("ada", "192.168.1.7") == 0
    attempts.failed("ada", "192.168.1.7")
    assert attempts.wait("ada", "192.168.1.7") == 0
    for _ in range(2):
        attempts.failed("ada", "192.168.1.7")
    assert attempts.wait("ada", "192.168.1.7") == LoginAttempts.MAX_DELAY


def test_a_successful_sign_in_does_not_reset_the_delay_of_another_name():
    attempts = LoginAttempts(clock=Clock(0.0))
    for _ in range(3):
        attempts.failed("ada", "10.0.0.9")
        attempts.succeeded("bob", "10.0.0.9")

    assert attempts.wait("ada", "10.0.0.9") > 0


def test_all_addresses_of_an_ipv6_network_share_one_delay():
    attempts = LoginAttempts(clock=Clock(0.0))
    for number in range(3):
        attempts.failed(f"name-{number}", f"2001:db8::{number:x}")
    for number in range(3):
        attempts.failed(f"name-{number}", f"::ffff:10.0.0.{number}")

    assert attempts.wait("ada", "2001:db8::ffff") > 0
    assert attempts.wait("ada", "2001:db8:0:1::1") == 0 == attempts.wait("ada", "10.0.0.1")


def test_failures_are_forgotten_after_an_hour():
    clock = Clock(0.0)
    attempts = LoginAttempts(clock=clock)
    for _ in range(9):
        attempts.failed("ada", "a")
    clock.now = 4000.0
    attempts.failed("ada", "a")

    assert attempts.wait("ada", "a") == 0
