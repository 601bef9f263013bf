"""Views and outputs hide secrets, and nothing else."""

from __future__ import annotations

import pytest

from producer_core._internal import masking
from producer_core._internal.masking import display_value, is_secret_name, mask, mask_headers, mask_text


@pytest.mark.parametrize(
    "name",
    ["password", "userPassword", "API_KEY", "api-key", "Authorization", "client.secret", "access_token", "cvv", "cardNumber", "Set-Cookie", "ssn", "session_id", "sasl.jaas.config"],
)  # fmt: skip
def test_a_secret_name_is_recognised_in_any_spelling(name):
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name", ["id", "key", "author", "pinned", "spinning", "card", "passenger", "company", "monkey"]
)
def test_an_ordinary_name_is_not_secret(name):
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("card 4111 1111 1111 1111 declined", "card ************1111 declined"),
        ("378282246310005", "***********0005"),
        ("mail ann.lee@example.com", "mail a***@example.com"),
        ("Authorization: Bearer abcdef123456", "Authorization: Bearer ***"),
        ("password=hunter2 user=ann", "password=*** user=ann"),
        ('{"api_key": "xyz"}', '{"api_key":"***"}'),
        ('got {"api_key": "xyz"}', 'got {"api_key": ***}'),
        ("eyJhbGciOi.eyJzdWIi.c2ln", "***"),
        ("AKIAIOSFODNN7EXAMPLE", "***"),
    ],
)
def test_a_secret_in_a_text_is_masked(text, masked):
    assert mask_text(text) == masked


@pytest.mark.parametrize(
    "text",
    ["4111 1111 1111 1112", "1700000000000", "1700000000000000", "order 1234567890123456", "12.50", "a@b", "broker1:9092", "019a2b3c-1111-7222-8333-444455556666-17"],
)  # fmt: skip
def test_text_that_only_resembles_a_secret_is_unchanged(text):
    assert mask_text(text) == text


def test_a_value_keeps_its_shape():
    value = {"user": "ann", "card": {"number": 4111111111111111, "cvv": 123}, "tags": ["x", None, True, 1.5]}

    assert mask(value) == {
        "user": "ann",
        "card": {"number": "************1111", "cvv": "***"},
        "tags": ["x", None, True, 1.5],
    }


def test_a_secret_field_that_is_null_stays_null():
    assert mask({"token": None}) == {"token": None}


def test_bytes_are_displayed_as_json_text_or_size():
    assert display_value(None) is None
    assert display_value(b'{"password": "x"}') == {"password": "***"}
    assert display_value(b'{"password": "x"}', reveal=True) == {"password": "x"}
    assert display_value(b"plain ann@example.com") == "plain a***@example.com"
    assert display_value(b"\xff\x00") == "2 bytes that are not text"
    assert display_value(b"\xff") == "1 byte that is not text"
    assert display_value(b"\xff\x00", reveal=True) == "0xff00"


def test_headers_keep_order_duplicates_and_null():
    headers = [("trace", b"1"), ("authorization", b"Basic abc"), ("trace", None)]

    assert mask_headers(headers) == [["trace", 1], ["authorization", "***"], ["trace", None]]


def test_names_with_the_same_masked_form_stay_separate():
    found = mask({"anna@x.io": 1, "adam@x.io": 2, "a***@x.io (2)": 3, "abel@x.io": 4})
    assert list(found.values()) == [1, 2, 3, 4]
    assert list(found)[:2] == ["a***@x.io", "a***@x.io (2)"]


def test_each_name_with_the_same_masked_form_is_looked_up_a_few_times(monkeypatch):
    """The time must not grow with the square of the number of names."""
    tried = []
    find = masking._another_name

    class Counted(dict):
        def __contains__(self, name):
            tried.append(name)
            return super().__contains__(name)

    monkeypatch.setattr(
        masking, "_another_name", lambda masked, taken, repeated: find(masked, Counted(taken), repeated)
    )
    found = mask({f"a{number}@b.co": number for number in range(500)})
    assert len(found) == 500
    assert len(tried) == 499


@pytest.mark.parametrize("name", ["[shop.pin]", "[shop.v1.ssn]", "[shop.password]", "[pin]"])
def test_an_extension_of_protobuf_is_masked_by_its_name(name):
    assert mask({name: "1234", "[shop.pins]": "x"}) == {name: "***", "[shop.pins]": "x"}


def test_rules_for_a_name_apply_to_an_extension_of_protobuf(tmp_path, monkeypatch):
    (tmp_path / "masking.toml").write_text('names = ["birth_date"]\nopen = ["token_count"]')
    monkeypatch.setenv("PRODUCER_CORE_MASKING", str(tmp_path / "masking.toml"))
    assert mask({"[shop.birth_date]": "x", "[shop.token_count]": 7}) == {
        "[shop.birth_date]": "***",
        "[shop.token_count]": 7,
    }
