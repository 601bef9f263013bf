"""Test the browser policy: the requests that it rejects and the headers that it changes."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest
import uvicorn

from producer_core.dashboard.auth.browser_policy import BrowserPolicy
from tests.support import eventually

HOST = "dash.example:8443"


class Streamlit:
    """Record the requests that arrive, and set cookies as Streamlit does."""

    def __init__(self, headers=()):
        self.requests = []
        self.headers = list(headers)

    async def __call__(self, scope, receive, send):
        self.requests.append(scope)
        if scope["type"] == "http":
            headers = [(b"set-cookie", b"_streamlit_user=x; Path=/"), (b"set-cookie", b"a=b; secure; Path=/")]
            headers += self.headers
            await send({"type": "http.response.start", "status": 200, "headers": headers})


def reaches(
    kind, *, path="/", scheme="http", https=False, hosts=("dash.example",), base="", response=(), **headers
):
    """Return the requests that reach Streamlit, and the messages of the response.

    A tuple as the value of a header sends the header once for each item.
    """
    streamlit, messages = Streamlit(response), []
    policy = BrowserPolicy(streamlit, hosts=hosts, base=base, https=https)
    given = [
        (name.encode(), one.encode())
        for name, value in {"host": HOST, **headers}.items()
        for one in ([value] if isinstance(value, str) else value)
    ]
    scope = {"type": kind, "path": path, "scheme": scheme, "headers": given}

    async def send(message):
        messages.append(message)

    asyncio.run(policy(scope, None, send))
    return streamlit.requests, messages


@pytest.mark.parametrize("origin", [f"https://{HOST}", f"http://{HOST}", f"https://{HOST}".upper()])
def test_a_page_of_the_same_origin_opens_the_websocket(origin):
    assert reaches("websocket", origin=origin)[0]


@pytest.mark.parametrize("https", [{"scheme": "wss"}, {"https": True}])
def test_over_https_a_page_of_plain_http_cannot_open_the_websocket(https):
    assert reaches("websocket", origin=f"https://{HOST}", **https)[0]
    assert not reaches("websocket", origin=f"http://{HOST}", **https)[0]


def test_a_client_without_an_origin_opens_the_websocket():
    assert reaches("websocket")[0]


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "http://localhost:3000",
        "http://127.0.0.1:8443",
        "https://dash.example:1",
        "https://dash.example",
        f"https://{HOST}.evil.example",
        f"https://{HOST}@evil.example",
        "https://[",
        "null",
        "",
    ],
)
def test_a_page_of_another_origin_is_rejected_before_streamlit_sees_it(origin):
    requests, messages = reaches("websocket", origin=origin)

    assert requests == []
    assert [(one["type"], one["code"]) for one in messages] == [("websocket.close", 1008)]


def test_a_websocket_with_two_origins_is_rejected():
    assert not reaches("websocket", origin=(f"https://{HOST}", f"https://{HOST}"))[0]
    assert not reaches("websocket", origin=(f"https://{HOST}", "https://evil.example"))[0]


@pytest.mark.slow
def test_the_server_matches_an_origin_in_capital_letters():
    """The middleware compares names in lower case, as ASGI requires them; this is the server that Streamlit starts."""
    config = uvicorn.Config(
        BrowserPolicy(Streamlit(), hosts=["*"]),
        port=0,
        ws="websockets-sansio",
        log_level="error",
        lifespan="off",
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        eventually(lambda: server.started)
        with socket.create_connection(server.servers[0].sockets[0].getsockname(), timeout=10) as client:
            client.sendall(
                b"GET / HTTP/1.1\r\nHOST: dash.example\r\nORIGIN: http://evil.example\r\nConnection: Upgrade\r\n"
                b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
            )
            assert client.recv(100).startswith(b"HTTP/1.1 403")
    finally:
        server.should_exit = True
        thread.join()


def test_a_cross_origin_request_for_a_file_is_left_to_the_browser():
    assert reaches("http", origin="https://evil.example")[0]


@pytest.mark.parametrize("https", [{"scheme": "https"}, {"https": True}])
def test_over_https_every_cookie_is_secure(https):
    _, (start,) = reaches("http", **https)
    cookies = [value for name, value in start["headers"] if name == b"set-cookie"]

    assert cookies == [b"_streamlit_user=x; Path=/; Secure", b"a=b; secure; Path=/"]


def test_over_plain_http_cookies_are_unchanged():
    _, (start,) = reaches("http")

    assert start["headers"][0] == (b"set-cookie", b"_streamlit_user=x; Path=/")


def test_two_dashboards_under_one_name_read_their_own_cookies():
    """A browser sends the cookie of /kafka before that of /."""
    (scope,), _ = reaches("http", cookie="session=kafka; other=1; session=root")

    assert dict(scope["headers"])[b"cookie"] == b"session=kafka; other=1"


@pytest.mark.parametrize("cookie", ["", "a=1", "a=1; b=2; c", "a"])
def test_cookies_of_different_names_are_passed_on(cookie):
    (scope,), _ = reaches("http", cookie=cookie)

    assert dict(scope["headers"])[b"cookie"] == cookie.encode()


# host names


@pytest.mark.parametrize(
    "host",
    ["dash.example", "dash.example:1", "DASH.example", "dash.example.", "a.shop.example", "[::1]:8501"],
)
@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_an_allowed_host_name_is_accepted_with_any_port(kind, host):
    assert reaches(kind, host=host, hosts=("dash.example", "*.shop.example", "::1"))[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "dash.example.evil.example",
        "shop.example",
        "evil-shop.example",
        "dash.example@evil.example",
        "evil.example#dash.example",
        "evil.example/dash.example",
        "dash.example:x",
        "[",
        "",
        (),
        ("dash.example", "evil.example"),
        ("dash.example", "dash.example"),
    ],
)
@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_a_missing_repeated_or_unknown_host_name_is_rejected(kind, host):
    requests, messages = reaches(kind, host=host, hosts=("dash.example", "*.shop.example"))

    assert requests == []
    if kind == "websocket":
        assert [(one["type"], one["code"]) for one in messages] == [("websocket.close", 1008)]
        return
    headers = dict(messages[0]["headers"])
    assert messages[0]["status"] == 421 and b"does not accept this host name" in messages[1]["body"]
    assert headers[b"content-length"] == str(len(messages[1]["body"])).encode()
    assert (headers[b"content-type"], headers[b"cache-control"]) == (
        b"text/plain; charset=utf-8",
        b"no-store",
    )
    assert headers[b"content-security-policy"] == b"frame-ancestors 'self'"


def test_only_the_health_check_accepts_every_host_name():
    assert reaches("http", host="10.0.0.7", path="/kafka/_stcore/health", base="kafka")[0]
    assert not reaches("websocket", host="10.0.0.7", path="/kafka/_stcore/health", base="kafka")[0]
    assert not reaches("http", host="10.0.0.7", path="/kafka/_stcore/host-config", base="kafka")[0]


# frames


def test_only_pages_of_the_same_origin_may_frame_a_page():
    _, (start,) = reaches("http")
    headers = dict(start["headers"])

    assert headers[b"content-security-policy"] == b"frame-ancestors 'self'"
    assert headers[b"x-frame-options"] == b"SAMEORIGIN"


def test_a_stricter_frame_rule_of_a_page_is_not_extended():
    strict = [
        (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"), (b"x-frame-options", b"DENY")
    ]  # fmt: skip
    _, (start,) = reaches("http", response=strict)

    assert [pair for pair in start["headers"] if pair[0] != b"set-cookie"] == strict


def test_a_policy_without_a_rule_for_frames_gets_one():
    other = (b"content-security-policy", b"default-src 'self'")
    _, (start,) = reaches("http", response=[other])
    policies = [value for name, value in start["headers"] if name == b"content-security-policy"]

    assert policies == [other[1], b"frame-ancestors 'self'"]
