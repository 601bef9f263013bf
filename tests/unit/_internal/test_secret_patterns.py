"""The masking rules file: additional names and patterns, invalid rules, and texts built to slow down matching."""

from __future__ import annotations

import os

import pytest

from producer_core._internal import masking
from producer_core._internal.masking import (
    HIDDEN,
    display_key,
    display_value,
    mask,
    mask_headers,
    mask_or_hide,
    mask_text,
)
from producer_core.errors import ConfigError


@pytest.fixture
def rules(tmp_path, monkeypatch):
    path = tmp_path / "masking.toml"
    monkeypatch.setenv("PRODUCER_CORE_MASKING", str(path))

    def write(text):
        path.write_text(text)
        os.utime(path, ns=(write.at, write.at))
        write.at += 10**9

    write.at = 10**18
    return write


def test_configured_names_are_hidden_in_fields_headers_and_texts(rules):
    rules('names = ["birth_date", "customer*"]')

    assert mask({"birthDate": "1970-01-01", "customerName": "Ann", "order": 7}) == {
        "birthDate": HIDDEN, "customerName": HIDDEN, "order": 7,
    }  # fmt: skip
    assert mask_headers([("Customer-Id", b"17"), ("trace", b"a")]) == [
        ["Customer-Id", HIDDEN],
        ["trace", "a"],
    ]
    assert "1970" not in mask_text("cannot read birth_date=1970-01-01 of 7")
    assert "Ann" not in mask_text('{"customerName": "Ann", broken')


def test_configured_patterns_are_hidden_in_any_text(rules):
    rules(r"patterns = ['\bCUST-\d{6}\b', '(?i)\bzebra\b', '\b7{9}\b']")

    assert mask_text("refused CUST-123456 of Zebra") == "refused *** of ***"
    assert mask({"note": ["CUST-123456"], "CUST-123456": 1, "number": 777777777}) == {
        "note": [HIDDEN], HIDDEN: 1, "number": HIDDEN,
    }  # fmt: skip
    assert display_key(b"CUST-123456") == HIDDEN
    assert mask_headers([("a", b"CUST-123456")]) == [["a", HIDDEN]]


def test_a_secret_looking_name_listed_as_open_is_shown(rules):
    rules('open = ["token_count"]')

    assert mask({"token_count": 3, "token": 3}) == {"token_count": 3, "token": HIDDEN}


def test_keys_values_and_headers_can_be_hidden_completely(rules):
    rules('hide = ["keys", "values", "headers"]')

    assert display_key(b"order 7") == HIDDEN
    assert display_value(b'{"n": 1}') == "8 bytes, hidden"
    assert mask_headers([("trace", b"a"), ("none", None)]) == [["trace", HIDDEN], ["none", None]]
    assert display_value(b'{"n": 1}', reveal=True) == {"n": 1}


def test_a_changed_file_takes_effect_immediately(rules):
    rules("patterns = ['one']")
    assert mask_text("one two") == "*** two"

    rules("patterns = ['two']")
    assert mask_text("one two") == "one ***"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("names = [", "cannot be read as TOML"),
        ("nmaes = []", "no setting 'nmaes'. Did you mean names?"),
        ("names = 'x'", "names must be a list"),
        ("names = [1]", "names must be a list"),
        ("hide = ['errors']", "'errors' cannot be hidden. Use one of keys, values, headers"),
        ("patterns = ['(a']", "is not valid RE2"),
        ("patterns = ['(?=a)']", "is not valid RE2"),
        ("patterns = ['x*']", "matches the empty string"),
        (r"patterns = ['\b']", "matches the empty string"),
    ],
)
def test_invalid_rules_raise_an_error_and_nothing_is_shown(rules, text, expected):
    rules(text)

    for display in (
        lambda: mask_text("x"),
        lambda: mask({}),
        lambda: display_value(b"x"),
        lambda: display_key(b"x"),
    ):
        with pytest.raises(ConfigError, match="Nothing is shown until the file is corrected") as error:
            display()
    assert expected in str(error.value)
    assert mask_or_hide("hunter2").startswith("(hidden: ")


def test_a_named_rules_file_that_is_missing_raises_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("PRODUCER_CORE_MASKING", str(tmp_path / "nothing.toml"))

    with pytest.raises(ConfigError, match="PRODUCER_CORE_MASKING"):
        mask_text("x")


def test_without_a_file_the_built_in_rules_apply(tmp_path, monkeypatch):
    monkeypatch.delenv("PRODUCER_CORE_MASKING", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    assert masking.rules() == masking.MaskingRules()
    (tmp_path / "producer-core").mkdir()
    (tmp_path / "producer-core" / "masking.toml").write_text("patterns = ['zebra']")
    assert mask_text("a zebra") == "a ***"


SLOW = [
    "a." * 200_000,
    "a" * 400_000,
    "a@" * 200_000,
    "password" * 50_000,
    "password=" + "'" * 400_000,
    'token="' + "\\" * 400_000,
    "eyJ" * 130_000,
    "eyJ-" * 100_000,
    "xoxb-" * 80_000,
    "4" * 400_000,
    "4 " * 200_000,
    "<a>" * 130_000 + "</",
    "-----BEGIN " * 40_000,
    "://" * 130_000,
    "basic " * 60_000,
    "authorization: token " * 20_000,
    "\\" * 400_000 + '"',
    "password: |\n" + "  a\n" * 100_000,
    "--password " * 40_000,
    '<a name="password" ' * 20_000 + "value </",
    "<password><![CDATA[" + "]" * 400_000 + "</",
    "%70" * 130_000,
    "gh_" * 130_000,
    "A" * 400_000 + "/",
    "１" * 100_000,
]


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("text", SLOW, ids=[text[:12] for text in SLOW])
def test_masking_stays_fast_for_pathological_patterns_and_texts(rules, text):
    rules(r"patterns = ['(a+)+$', '([a-z]+)*\d']")

    mask_text(text)


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ('{"password": "hun ter2', "ter2"),
        ('{"password": "hun\\" ter2"}', "ter2"),
        ("redis://ann:hunter2@cache:6379/0", "hunter2"),
        ("<login><Password>hunter2</Password></login>", "hunter2"),
        ("pin=1234&x=1", "1234"),
        ("Set-Cookie: id=abc; x", "id=abc"),
        ("authorization: abc123", "abc123"),
        ("Authorization: Token hunter2", "hunter2"),
        ("Authorization: ApiKey hunter2", "hunter2"),
        ('curl -H "Authorization: Token hunter2" x', "hunter2"),
        (r'got "{\"user\": \"ann\", \"password\": \"hunter2\"}"', "hunter2"),
        ("user=ann&password%3Dhunter2", "hunter2"),
        ("api%5Fkey=hunter2", "hunter2"),
        ('<user name="ann" password="hunter2"/>', "hunter2"),
        ('<param name="password" value="hunter2"/>', "hunter2"),
        ("<password><![CDATA[hunter<2]]></password>", "hunter<2"),
        ('<password type="plain">hunter2</password>', "hunter2"),
        ("password: |\n  hunter2\n  ter3\nuser: ann", "ter3"),
        ("kafka-acls --password hunter2 --list", "hunter2"),
        ("pass\u200bword=hunter2", "hunter2"),
        ("ｐａｓｓｗｏｒｄ=hunter2", "hunter2"),
        ("key github_pat_11ABCDEFG0aBcDeFgHiJkL_mNoPqRsTuVwXyZ x", "aBcDeFgHiJkL"),
        ("AIzaSyA1234567890abcdefghijklmnopqrstuv", "abcdefghij"),
        ("sk-proj-abcdefghijklmnopqrstuvwxyz0123", "klmnop"),
        ("glpat-abcdefghijklmnopqrst", "klmnop"),
        ("the key wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY is", "MDENG"),
    ],
)
def test_secrets_in_malformed_and_other_texts_are_hidden(text, secret):
    assert secret not in mask_text(text)


@pytest.mark.parametrize(
    "value",
    [
        {"name": "password", "value": "hunter2"},
        {"key": "Authorization", "value": ["hunter2"]},
        [["Authorization", "Token hunter2"], ["a", "b"]],
        {"text": '{"password": "hunter2"}'},
        {"ｐａｓｓｗｏｒｄ": "hunter2"},
        {"pass\u200bword": "hunter2"},
        {"items": [{"Name": "api_key", "content": {"deep": "hunter2"}}]},
    ],
)
def test_secrets_in_other_json_shapes_are_hidden(value):
    assert "hunter2" not in str(mask(value))


@pytest.mark.parametrize(
    "text",
    [
        "3b18e512dba79e4c8300dd08aeb37f8e728b8dad",  # a commit hash
        "order 100% done, per-token price",
        '{"name": "ann", "value": 3}',
        "Größe: 40",
        "01930000-0000-7000-8000-000000000001-1",
    ],
)
def test_a_text_without_a_secret_is_unchanged(text):
    assert mask_text(text) == text


def test_bytes_that_are_not_text_show_only_their_size():
    for data in (
        b"\xffann@example.com",
        "ann@example.com".encode("utf-16"),
        b"\x00\x0aann@example.com",
        b"\x1b[2J",
    ):
        assert display_value(data) == display_key(data) == f"{len(data)} bytes that are not text"
        assert mask_headers([("a", data)]) == [["a", f"{len(data)} bytes that are not text"]]


def test_a_long_value_shows_only_its_size():
    assert display_value(b"x" * (masking.LONGEST + 1)) == "1,048,577 bytes, too long to be shown masked"


def test_a_field_name_that_is_an_address_is_masked_and_stays_unique():
    assert mask({"ann@example.com": 1, "amy@example.com": 2}) == {
        "a***@example.com": 1,
        "a***@example.com (2)": 2,
    }


def test_values_nested_too_deeply_are_hidden():
    assert HIDDEN in str(display_value(b"[" * 500 + b"]" * 500))


def test_a_card_number_is_masked_in_any_numeric_form():
    assert mask([4111111111111111, 4111111111111111.0, 12.5, True]) == ["************1111"] * 2 + [12.5, True]
