"""Test the browser policy: the requests that it rejects and the headers that it changes."""

from __future__ import annotations

import asyncio

import pytest

from producer_core.dashboard.auth.browser_policy import BrowserPolicy

HOST = "dash.example:8443"


class Streamlit:
    """Record the requests that arrive, and set cookies as Streamlit does."""

    def __init__(self):
        self.requests = []

    async def __call__(self, scope, receive, send):
        self.requests.append(scope)
        if scope["type"] == "http":
            headers = [(b"set-cookie", b"_streamlit_user=x; Path=/"), (b"set-cookie", b"a=b; secure; Path=/")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})


def reaches(kind, *, scheme="http", https=False, **headers):
    """Return the requests that reach Streamlit, and the messages of the response."""
    streamlit, messages = Streamlit(), []
    policy = BrowserPolicy(streamlit, hosts=["dash.example"], https=https)
    given = {"host": HOST, **headers}
    scope = {
        "type": kind, "path": "/", "scheme": scheme, "headers": [(n.encode(), v.encode()) for n, v in given.items()],
    }  # fmt: skip

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
    assert messages == [{"type": "websocket.close", "code": 1008}]


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
