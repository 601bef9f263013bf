"""The dashboard's command: the addresses that it listens on, the proxies that it trusts, and the path of its pages."""

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


def environment(*proxies):
    command = server_command.command("store.duckdb", 8123, proxies=proxies)
    return dict(part.split("=", 1) for part in command[1:3])


def counts_as(peer, forwarded, *proxies):
    """The address that a request counts for, as Uvicorn reads the environment that the command gives it."""
    found = []

    async def app(scope, receive, send):
        found.append(scope["client"][0])

    trusting = ProxyHeadersMiddleware(app, environment(*proxies)["FORWARDED_ALLOW_IPS"])
    scope = {"type": "http", "client": (peer, 1), "headers": [(b"x-forwarded-for", forwarded.encode())]}
    asyncio.run(trusting(scope, None, None))
    return found[0]


@pytest.mark.parametrize(
    ("peer", "proxies", "counted"),
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
def test_a_forwarded_address_counts_only_from_a_proxy_that_is_named(peer, proxies, counted):
    assert counts_as(peer, "1.2.3.4, 10.0.0.9", *proxies) == counted


def test_a_variable_of_the_environment_makes_no_client_a_proxy(monkeypatch):
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")

    assert counts_as("10.0.0.9", "1.2.3.4") == "10.0.0.9"


def test_a_port_is_found_on_every_address_of_both_versions():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        wanted = taken.getsockname()[1]

        assert server_command.free_port(wanted, "127.0.0.1") > wanted
    if socket.has_ipv6:
        assert server_command.free_port(8123, "::") >= 8123


@pytest.fixture
def started(monkeypatch, tmp_path):
    """Run the command up to the moment at which it would start the server: its result, and the place."""
    places = []
    monkeypatch.setattr("producer_core.cli.dashboard._serve", lambda _, __, place: places.append(place))
    monkeypatch.setattr("producer_core.cli.dashboard.find_spec", lambda _: True)

    def start(*options, admitted=None):
        monkeypatch.setattr(access_rules, "read", lambda: admitted or AccessRules(passwords={"ada": ""}))
        ended = CliRunner().invoke(main, ["dashboard", "--store", str(tmp_path / "s.duckdb"), *options])
        return ended, places[-1] if places else None

    return start


@pytest.mark.parametrize("everybody", ["0.0.0.0/0", "::/0"])
def test_a_proxy_is_not_the_whole_network(started, everybody):
    ended, place = started("--proxy", everybody)

    assert ended.exit_code == 2 and place is None
    assert "contains every client" in ended.stderr


def test_without_its_proxy_the_command_says_that_one_browser_makes_others_wait(started):
    assert "--proxy with its address" in started("--host", "dash.example")[0].stderr
    assert "--proxy" in started("--address", "0.0.0.0")[0].stderr
    assert started("--host", "dash.example", "--proxy", "127.0.0.1")[0].stderr == ""


@pytest.mark.parametrize(
    ("given", "path"),
    [("/kafka", "/kafka"), ("kafka/", "/kafka"), ("/a/b-1.2_~", "/a/b-1.2_~"), ("/", ""), ("", "")],
)
def test_a_base_path_is_written_with_or_without_its_slashes(started, given, path):
    assert started("--base-path", given)[1].base == path


@pytest.mark.parametrize(
    "given", ["/a b", "/../x", "a//b", "/a?b", "//evil.example/..", "/é", "/a%20b", "a\n"]
)
def test_a_base_path_that_proxies_read_differently_is_refused(started, given):
    ended, place = started("--base-path", given)

    assert ended.exit_code == 2 and place is None


def test_the_server_gets_the_base_path():
    assert "--server.baseUrlPath=kafka" in server_command.command("store.duckdb", 8123, base="/kafka")
    assert not any("baseUrlPath" in part for part in server_command.command("store.duckdb", 8123))


@pytest.mark.parametrize(
    ("back", "options", "said"),
    [
        ("/kafka/oauth2callback", ["--base-path", "/kafka"], ""),
        ("/oauth2callback", [], ""),
        ("/kafka/oauth2callback", [], "Give --base-path /kafka"),
        ("/oauth2callback", ["--base-path", "/kafka"], "Give --base-path /,"),
    ],
)
def test_the_command_says_when_a_provider_would_lead_to_another_path(started, back, options, said):
    admitted = AccessRules(oidc=True, comes_back_to=f"https://dash.example{back}")
    ended, place = started("--host", "dash.example", *options, admitted=admitted)

    assert said in ended.stderr
    assert (place is None) == bool(said)


def test_an_address_of_another_machine_is_refused_in_a_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr(access_rules, "read", lambda: AccessRules(passwords={"ada": ""}))
    options = ["--store", str(tmp_path / "s.duckdb"), "--address", "192.0.2.1"]

    ended = CliRunner().invoke(main, ["dashboard", *options])

    assert ended.exit_code == 2
    assert "cannot listen on 192.0.2.1" in ended.stderr
