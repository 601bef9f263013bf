"""Test the dashboard command: its addresses, its trusted proxies and its base path."""

from __future__ import annotations

import asyncio
import socket

import pytest
from click.testing import CliRunner
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from producer_core.cli import main
from producer_core.dashboard.auth import access_rules
from producer_core.dashboard.auth.access_rules import AccessRules
from producer_core.dashboard.server import command as server_command
from tests.fixtures.sign_in import OIDC


def environment(*proxies):
    command = server_command.command("store.duckdb", 8123, proxies=proxies)
    return dict(part.split("=", 1) for part in command[1:3])


def client_address(peer, forwarded, *proxies):
    """Return the client address that Uvicorn determines with the environment of the command."""
    found = []

    async def app(scope, receive, send):
        found.append(scope["client"][0])

    trusting = ProxyHeadersMiddleware(app, environment(*proxies)["FORWARDED_ALLOW_IPS"])
    scope = {"type": "http", "client": (peer, 1), "headers": [(b"x-forwarded-for", forwarded.encode())]}
    asyncio.run(trusting(scope, None, None))
    return found[0]


@pytest.mark.parametrize(
    ("peer", "proxies", "expected"),
    [
        ("127.0.0.1", ["127.0.0.1"], "10.0.0.9"),
        ("::ffff:127.0.0.1", ["127.0.0.1"], "10.0.0.9"),
        ("::ffff:10.1.0.7", ["10.1.0.0/16"], "10.0.0.9"),
        ("::1", ["127.0.0.1", "::1"], "10.0.0.9"),
        ("127.0.0.2", ["127.0.0.1"], "127.0.0.2"),
        ("::ffff:10.2.0.7", ["10.1.0.0/16"], "::ffff:10.2.0.7"),
        ("127.0.0.1", [], "127.0.0.1"),
    ],
)
def test_a_forwarded_address_is_trusted_only_from_a_named_proxy(peer, proxies, expected):
    assert client_address(peer, "1.2.3.4, 10.0.0.9", *proxies) == expected


def test_an_environment_variable_cannot_add_trusted_proxies(monkeypatch):
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")

    assert client_address("10.0.0.9", "1.2.3.4") == "10.0.0.9"


def test_a_free_port_is_found_for_ipv4_and_ipv6():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        wanted = taken.getsockname()[1]

        assert server_command.free_port(wanted, "127.0.0.1") > wanted
    if socket.has_ipv6:
        assert server_command.free_port(8123, "::") >= 8123


@pytest.fixture
def started(monkeypatch, tmp_path):
    """Run the command until it would start the server, and return its result and the listener."""
    listeners = []
    monkeypatch.setattr(
        "producer_core.cli.dashboard._serve", lambda _, __, listener: listeners.append(listener)
    )
    monkeypatch.setattr("producer_core.cli.dashboard.find_spec", lambda _: True)

    def start(*options, rules=None):
        monkeypatch.setattr(access_rules, "read", lambda: rules or AccessRules(passwords={"ada": ""}))
        result = CliRunner().invoke(main, ["dashboard", "--store", str(tmp_path / "s.duckdb"), *options])
        return result, listeners[-1] if listeners else None

    return start


@pytest.mark.parametrize("network", ["0.0.0.0/0", "::/0"])
def test_a_proxy_range_of_the_whole_network_is_rejected(started, network):
    result, listener = started("--proxy", network)

    assert result.exit_code == 2 and listener is None
    assert "contains every client" in result.stderr


def test_the_command_warns_if_a_host_is_given_without_its_proxy(started):
    assert "--proxy with its address" in started("--host", "dash.example")[0].stderr
    assert "--proxy" in started("--address", "0.0.0.0")[0].stderr
    assert started("--host", "dash.example", "--proxy", "127.0.0.1")[0].stderr == ""


@pytest.mark.parametrize(
    ("given", "path"),
    [("/kafka", "/kafka"), ("kafka/", "/kafka"), ("/a/b-1.2_~", "/a/b-1.2_~"), ("/", ""), ("", "")],
)
def test_a_base_path_is_accepted_with_or_without_slashes(started, given, path):
    assert started("--base-path", given)[1].base == path


@pytest.mark.parametrize(
    "given", ["/a b", "/../x", "a//b", "/a?b", "//evil.example/..", "/é", "/a%20b", "a\n"]
)
def test_an_ambiguous_base_path_is_rejected(started, given):
    result, listener = started("--base-path", given)

    assert result.exit_code == 2 and listener is None


def test_the_base_path_is_passed_to_the_server():
    assert "--server.baseUrlPath=kafka" in server_command.command("store.duckdb", 8123, base="/kafka")
    assert not any("baseUrlPath" in part for part in server_command.command("store.duckdb", 8123))


@pytest.mark.parametrize(
    ("redirect_path", "options", "message"),
    [
        ("/kafka/oauth2callback", ["--base-path", "/kafka"], ""),
        ("/oauth2callback", [], ""),
        ("/kafka/oauth2callback", [], "Use --base-path /kafka"),
        ("/oauth2callback", ["--base-path", "/kafka"], "Use --base-path /,"),
    ],
)
def test_the_command_rejects_a_redirect_uri_with_another_path(started, redirect_path, options, message):
    rules = AccessRules(oidc=True, redirect_uri=f"https://dash.example{redirect_path}")
    result, listener = started("--host", "dash.example", *options, rules=rules)

    assert message in result.stderr
    assert (listener is None) == bool(message)


def test_an_address_of_another_machine_is_rejected_with_a_message(monkeypatch, tmp_path):
    monkeypatch.setattr(access_rules, "read", lambda: AccessRules(passwords={"ada": ""}))
    options = ["--store", str(tmp_path / "s.duckdb"), "--address", "192.0.2.1"]

    result = CliRunner().invoke(main, ["dashboard", *options])

    assert result.exit_code == 2
    assert "cannot listen on 192.0.2.1" in result.stderr


@pytest.mark.parametrize("options", [["--address", "0.0.0.0"], ["--host", "dash.example"]])
def test_the_command_refuses_a_public_address_without_a_sign_in(options, tmp_path, monkeypatch):
    monkeypatch.setattr(access_rules, "secrets_files", lambda: ())

    result = CliRunner().invoke(main, ["dashboard", "--store", str(tmp_path / "s.duckdb"), *options])

    assert result.exit_code == 2
    assert f"cannot be served on {options[1]}" in result.stderr
    assert "producer-core dashboard password NAME" in result.stderr and "ssh -L" in result.stderr


def test_the_command_rejects_a_redirect_uri_with_an_unknown_host_name(tmp_path, monkeypatch):
    (tmp_path / "secrets.toml").write_text(OIDC)
    monkeypatch.setattr(access_rules, "secrets_files", lambda: (tmp_path / "secrets.toml",))
    monkeypatch.setattr("producer_core.cli.dashboard.find_spec", lambda _: True)

    result = CliRunner().invoke(main, ["dashboard", "--store", str(tmp_path / "s.duckdb")])

    assert result.exit_code == 2
    assert (
        "redirect_uri in secrets.toml has the host dash.example" in result.stderr
        and "--host dash.example" in result.stderr
    )


def test_the_server_listens_on_loopback_and_sends_no_usage_statistics(path):
    command = server_command.command(path, 8123)
    assert "--server.address=127.0.0.1" in command
    assert "--browser.gatherUsageStats=false" in command
    assert command[-1] == str(path)


def test_a_folder_as_the_store_and_an_empty_name_are_refused(tmp_path):
    folder = CliRunner().invoke(main, ["dashboard", "--store", str(tmp_path)])
    assert folder.exit_code == 2 and "is a folder" in folder.output
    nameless = CliRunner().invoke(main, ["dashboard", "password", "", "--stdin"], input="secret-password\n")
    assert nameless.exit_code == 2 and "The name is empty" in nameless.output
