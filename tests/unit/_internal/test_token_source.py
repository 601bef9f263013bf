"""Tokens from a user's callback: what it may return, and what happens when it fails or hangs."""

from __future__ import annotations

import logging
import pickle
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import KafkaError, KafkaException

from producer_core._internal import token_source as token_source_module
from producer_core._internal.librdkafka import Producer
from producer_core._internal.token_source import (
    TokenFailed,
    TokenSource,
    describe_failure,
    is_token_failure,
    new_client,
    token_source,
    with_first_token,
)
from producer_core.errors import BrokerUnreachable, TokenUnavailable
from tests.support import eventually

NOW = 1_800_000_000.0
JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJvcmRlcnMifQ.c2lnbmF0dXJl"


def source(returned, **options):
    return TokenSource(lambda _: returned, clock=lambda: NOW, **options)


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ((JWT, NOW + 30), (JWT, NOW + 30)),
        ([JWT, int(NOW) + 30], (JWT, NOW + 30)),
        ((JWT, NOW + 30, "me"), (JWT, NOW + 30, "me")),
        ((JWT, NOW + 30, ""), (JWT, NOW + 30)),
        ((JWT, NOW + 30, "mé"), (JWT, NOW + 30, "mé")),
        ((JWT, NOW + 30, "", {"Auth": "a\tb c", "b": ""}), (JWT, NOW + 30, "", {"Auth": "a\tb c", "b": ""})),
        (
            (JWT, NOW + 30, "me", {"logicalCluster": "lkc-1"}),
            (JWT, NOW + 30, "me", {"logicalCluster": "lkc-1"}),
        ),
    ],
)
def test_a_token_is_passed_on_in_the_form_that_the_client_accepts(returned, expected):
    assert source(returned)("") == expected


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        (None, "oauth_cb returned None"),  # confluent-kafka aborts the process
        (JWT, "a value of type str"),
        ((JWT,), "a value of type tuple"),
        ((JWT, NOW + 30, "me", {}, 5), "a value of type tuple"),
        ((b"bytes", NOW + 30), "not a string of printable"),
        (("", NOW + 30), "not a string of printable"),
        (("a b", NOW + 30), "not a string of printable"),
        (("tökén", NOW + 30), "not a string of printable"),
        ((JWT, "soon"), "expiry time of type str"),
        ((JWT, True), "expiry time of type bool"),
        ((JWT, float("nan")), "the expiry time nan"),
        ((JWT, (NOW + 30) * 1000), "expiry time in milliseconds"),
        ((JWT, 300), "the expiry time 300, which looks like a duration"),
        ((JWT, NOW - 30), "a token that ended 30 s ago"),
        ((JWT, NOW + 30, 5), "principal of type int"),
        ((JWT, NOW + 30, "me", {"a_1": "x"}), "extensions"),
        ((JWT, NOW + 30, "me", {"a": 1}), "extensions"),
        ((JWT, NOW + 30, "me", ["a"]), "extensions"),
        ((JWT, 10**400), "expiry time in milliseconds"),
        ((JWT, -(10**400)), "a token that ended"),
        ((JWT, float("inf")), "the expiry time inf"),
        ((JWT, NOW + 30, "a\0b"), "principal"),  # the client would wait for 10 seconds, and give no reason
        ((JWT, NOW + 30, "\udc80"), "principal"),
        ((JWT, NOW + 30, "me", {"a": "\udc80"}), "extensions"),
        ((JWT, NOW + 30, "me", {"a": "é"}), "extensions"),
        ((JWT, NOW + 30, "me", {"a": "x\0y"}), "extensions"),
        ((JWT, NOW + 30, "me", {"auth": "x"}), "extensions"),
    ],
)
def test_anything_else_is_refused_with_a_reason_and_without_the_token(returned, reason):
    with pytest.raises(TokenUnavailable) as raised:
        source(returned)("")
    assert reason in str(raised.value)
    assert JWT not in str(raised.value)
    assert "Check oauth_cb" in raised.value.fix


async def a_coroutine(_config):
    return JWT, NOW + 30


@pytest.mark.filterwarnings("ignore:coroutine")
def test_a_coroutine_function_is_named():
    with pytest.raises(TokenUnavailable, match="a value of type coroutine"):
        TokenSource(a_coroutine)("")


def test_the_callback_receives_the_configuration():
    seen = []
    TokenSource(lambda config: seen.append(config) or (JWT, time.time() + 30))("scope=kafka")
    assert seen == ["scope=kafka"]


class Broken(Exception):
    def __str__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ValueError("closed"), "oauth_cb raised ValueError: closed"),
        (ValueError(f"refused {JWT}"), "oauth_cb raised ValueError: refused ***"),
        (ValueError("client_secret=geheim"), "client_secret=***"),
        (SystemExit(3), "oauth_cb raised SystemExit: 3"),
        (TimeoutError(), "oauth_cb raised TimeoutError"),
        (Broken(), "oauth_cb raised Broken"),
    ],
)
def test_an_exception_is_reported_and_logged_without_secrets(error, shown, caplog):
    def fail(_config):
        raise error

    with pytest.raises(TokenUnavailable) as raised:
        TokenSource(fail)("")
    assert shown in str(raised.value)
    for text in (str(raised.value), caplog.text):
        assert "geheim" not in text
        assert JWT not in text
    assert shown in caplog.text


def test_a_recovery_is_logged_once(caplog):
    caplog.set_level(logging.INFO)
    broken = [True]

    def get_token(_config):
        if broken[0]:
            raise ValueError("closed")
        return JWT, time.time() + 30

    tokens = TokenSource(get_token)
    with pytest.raises(TokenFailed):
        tokens("")
    broken[0] = False
    tokens("")
    tokens("")
    assert caplog.text.count("token obtained again") == 1
    assert JWT not in caplog.text


def test_a_callback_that_hangs_is_left_behind_and_called_again_later():
    hanging, calls = threading.Event(), []

    def get_token(_config):
        calls.append(1)
        if len(calls) == 1:
            hanging.wait(60)
        return JWT, time.time() + 30

    tokens = TokenSource(get_token, limit_s=0.05)
    try:
        with pytest.raises(TokenUnavailable, match=r"did not return within 0\.05 s"):
            tokens("")
        tokens._limit_s = 60.0  # the next call answers at once, on a machine of any speed
        assert tokens("")[0] == JWT
    finally:
        hanging.set()


def test_a_callback_that_always_hangs_occupies_a_few_threads_only():
    hanging, calls = threading.Event(), []

    def hang(_config):
        calls.append(1)
        hanging.wait(60)

    tokens = TokenSource(hang, limit_s=0.01)
    try:
        for _ in range(20):
            with pytest.raises(TokenUnavailable):
                tokens("")
        assert len(calls) <= 5
        with pytest.raises(TokenUnavailable, match="earlier calls of oauth_cb have not returned"):
            tokens("")
    finally:
        hanging.set()


def test_calls_that_return_in_time_are_not_limited():
    """Shards, read-backs and the telemetry publisher request their tokens at the same time."""
    together = threading.Barrier(12)

    def get_token(_config):
        together.wait(60)
        return JWT, time.time() + 30

    tokens = TokenSource(get_token, limit_s=60.0)
    with ThreadPoolExecutor(12) as clients:
        assert [token[0] for token in clients.map(lambda _: tokens(""), range(12))] == [JWT] * 12


def test_after_calls_that_never_return_the_callback_is_called_again_after_a_pause(monkeypatch):
    never, hanging, calls = threading.Event(), [True], []

    def get_token(_config):
        calls.append(1)
        if hanging[0]:
            never.wait(60)
        return JWT, time.time() + 30

    tokens = TokenSource(get_token, limit_s=0.01)
    now = time.monotonic()
    try:
        for _ in range(20):
            with pytest.raises(TokenUnavailable):
                tokens("")
        monkeypatch.setattr(token_source_module.time, "monotonic", lambda: now + 400)
        for _ in range(20):  # one of them calls it
            with pytest.raises(TokenUnavailable):
                tokens("")
        eventually(lambda: len(calls) == 6)
        hanging[0], tokens._limit_s = False, 60.0
        with pytest.raises(TokenUnavailable, match="6 earlier calls of oauth_cb have not returned"):
            tokens("")
        monkeypatch.setattr(token_source_module.time, "monotonic", lambda: now + 4000)
        assert tokens("")[0] == JWT
    finally:
        never.set()


def test_overdue_calls_that_return_no_longer_count():
    late, calls = threading.Event(), []

    def get_token(_config):
        calls.append(1)
        late.wait(60)
        return JWT, time.time() + 30

    tokens = TokenSource(get_token, limit_s=0.01)
    for _ in range(6):
        with pytest.raises(TokenUnavailable):
            tokens("")
    eventually(lambda: len(calls) == 5)
    late.set()
    eventually(lambda: tokens._overdue == 0)
    tokens._limit_s = 60.0
    assert tokens("")[0] == JWT


def test_without_a_thread_for_the_callback_there_is_no_token_until_there_is_one(monkeypatch):
    def no_thread(_thread):
        raise RuntimeError("can't start new thread")

    tokens = TokenSource(lambda _: (JWT, time.time() + 30))
    with monkeypatch.context() as exhausted:
        exhausted.setattr(threading.Thread, "start", no_thread)
        for _ in range(7):
            with pytest.raises(TokenFailed, match=r"no thread can be started for oauth_cb: can't start"):
                tokens("")
    assert tokens("")[0] == JWT


def test_a_new_client_begins_with_a_token_and_requests_the_next_one_itself():
    numbers = iter(range(9))
    settings = with_first_token(
        {"oauth_cb": lambda _: (f"token{next(numbers)}", time.time() + 30), "acks": "all"}
    )
    assert next(numbers) == 1  # the first token was requested before the client exists
    assert [settings["oauth_cb"]("")[0] for _ in range(2)] == ["token0", "token2"]
    assert settings["acks"] == "all"


class Cached:
    """A callback that returns the same token until its end, as many do. The first one ends after `seconds`."""

    def __init__(self, seconds):
        self.end, self.number = time.time() + seconds, 0

    def __call__(self, _config):
        if time.time() >= self.end:
            self.end, self.number = time.time() + 3600, self.number + 1
        return f"token{self.number}", self.end


def test_a_client_does_not_begin_with_a_token_that_is_about_to_end():
    settings = with_first_token({"oauth_cb": Cached(0.2)})
    assert settings["oauth_cb"]("")[0] == "token1"


def test_a_client_begins_with_a_short_token_if_there_is_no_other():
    settings = with_first_token({"oauth_cb": lambda _: ("short", time.time() + 0.5)})
    assert settings["oauth_cb"]("")[0] == "short"


@pytest.mark.slow
def test_a_client_that_accepts_no_token_is_a_failure_of_the_token(monkeypatch):
    """With the real client, which waits for 10 seconds. The only token ends before the client has it."""
    monkeypatch.setattr(token_source_module, "_SHORT_LIFE_S", -1.0)
    end = time.time() + 0.2
    settings = {
        "bootstrap.servers": "127.0.0.1:1", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (JWT, end),
    }  # fmt: skip

    def create(settings):
        assert settings["oauth_cb"] is not None
        while time.time() < end:
            threading.Event().wait(0.05)
        return Producer(settings)

    with pytest.raises(TokenFailed, match="the client accepted no token of oauth_cb"):
        new_client(create, settings)


def test_another_failure_of_a_new_client_keeps_its_error():
    with pytest.raises(KafkaException) as raised:
        new_client(Producer, {"bootstrap.servers": "", "no.such.setting": 1})
    assert not isinstance(raised.value, TokenFailed)


def test_settings_without_a_callback_stay_as_they_are():
    assert with_first_token({"acks": "all"}) == {"acks": "all"}


def test_a_source_is_not_wrapped_again():
    tokens = token_source(lambda _: None)
    assert token_source(tokens) is tokens


def test_a_missing_token_is_an_error_of_kafka_and_an_unreachable_broker():
    """Code that reads handles every KafkaException, and the commands every ProducerError."""
    error = TokenFailed("oauth_cb returned None")
    assert isinstance(error, KafkaException)
    assert isinstance(error, BrokerUnreachable)
    assert error.args[0].code() == KafkaError._AUTHENTICATION
    assert is_token_failure(error.args[0])


def test_a_traceback_names_the_public_class_of_a_missing_token():
    error = TokenFailed("oauth_cb returned None")
    (line,) = traceback.format_exception_only(error)
    assert line.startswith(
        "producer_core.errors.TokenUnavailable: No token was obtained: oauth_cb returned None."
    )
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (TokenFailed, str(error))


def test_the_text_of_the_client_is_put_so_that_masking_keeps_its_reason():
    text = "Failed to acquire SASL OAUTHBEARER token: Failed to connect to localhost:1"
    assert is_token_failure(KafkaError(KafkaError._AUTHENTICATION, text))
    assert describe_failure(text) == "No token was obtained: Failed to connect to localhost:1"
    assert describe_failure("Connection refused") == "Connection refused"
    assert not is_token_failure(KafkaError(KafkaError._AUTHENTICATION, "SASL authentication error"))
