"""The rules for browsers: what the server is asked, and how its answers are changed."""

from __future__ import annotations

import asyncio

import pytest

from producer_core.dashboard.auth.browser_policy import BrowserPolicy

HOST = "dash.example:8443"


class Streamlit:
    """An application that remembers what reached it, and sets cookies as Streamlit does."""

    def __init__(self):
        self.asked = []

    async def __call__(self, scope, receive, send):
        self.asked.append(scope)
        if scope["type"] == "http":
            headers = [(b"set-cookie", b"_streamlit_user=x; Path=/"), (b"set-cookie", b"a=b; secure; Path=/")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})


def reaches(kind, *, scheme="http", https=False, **headers):
    """The scope that reaches Streamlit, if any, and the headers of the answer."""
    streamlit, said = Streamlit(), []
    policy = BrowserPolicy(streamlit, hosts=["dash.example"], https=https)
    given = {"host": HOST, **headers}
    scope = {
        "type": kind, "path": "/", "scheme": scheme, "headers": [(n.encode(), v.encode()) for n, v in given.items()],
    }  # fmt: skip

    async def send(message):
        said.append(message)

    asyncio.run(policy(scope, None, send))
    return streamlit.asked, said


@pytest.mark.parametrize("origin", [f"https://{HOST}", f"http://{HOST}", f"https://{HOST}".upper()])
def test_a_page_of_the_dashboard_opens_its_connection(origin):
    assert reaches("websocket", origin=origin)[0]


@pytest.mark.parametrize("https", [{"scheme": "wss"}, {"https": True}])
def test_over_https_a_page_of_plain_http_opens_no_connection(https):
    assert reaches("websocket", origin=f"https://{HOST}", **https)[0]
    assert not reaches("websocket", origin=f"http://{HOST}", **https)[0]


def test_a_program_that_names_no_origin_opens_a_connection():
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
def test_a_page_of_another_origin_opens_none_and_streamlit_looks_up_no_address_for_it(origin):
    asked, said = reaches("websocket", origin=origin)

    assert asked == []
    assert said == [{"type": "websocket.close", "code": 1008}]


def test_a_file_that_another_origin_asks_for_is_left_to_the_rules_of_browsers():
    assert reaches("http", origin="https://evil.example")[0]


@pytest.mark.parametrize("https", [{"scheme": "https"}, {"https": True}])
def test_over_https_every_cookie_is_for_https_alone(https):
    _, (start,) = reaches("http", **https)
    cookies = [value for name, value in start["headers"] if name == b"set-cookie"]

    assert cookies == [b"_streamlit_user=x; Path=/; Secure", b"a=b; secure; Path=/"]


def test_over_plain_http_cookies_stay_as_they_are():
    _, (start,) = reaches("http")

    assert start["headers"][0] == (b"set-cookie", b"_streamlit_user=x; Path=/")


def test_of_two_dashboards_under_one_name_each_reads_its_own_cookie():
    """The browser sends the cookie of /kafka before that of /."""
    (scope,), _ = reaches("http", cookie="session=kafka; other=1; session=root")

    assert dict(scope["headers"])[b"cookie"] == b"session=kafka; other=1"


@pytest.mark.parametrize("cookie", ["", "a=1", "a=1; b=2; c", "a"])
def test_cookies_of_different_names_are_passed_on(cookie):
    (scope,), _ = reaches("http", cookie=cookie)

    assert dict(scope["headers"])[b"cookie"] == cookie.encode()
