"""Test the return to the requested page after an OIDC sign-in."""

from __future__ import annotations

import asyncio

import pytest

from producer_core.dashboard.auth.oidc_return import COOKIE as COOKIE_BACK
from producer_core.dashboard.auth.oidc_return import OidcReturn
from tests.fixtures.sign_in import Response, attributes


def returned(path, location="/", **headers):
    """Return the response headers of Streamlit's redirect after the middleware has changed it."""
    messages = []

    async def streamlit(scope, receive, send):
        await send(
            {"type": "http.response.start", "status": 302, "headers": [(b"location", location.encode())]}
        )
        await send({"type": "http.response.body", "body": b""})

    async def send(message):
        messages.append(message)

    given = [(name.encode(), value.encode()) for name, value in {"host": "dash.example", **headers}.items()]
    scope = {"type": "http", "path": path, "scheme": "https", "headers": given}
    asyncio.run(OidcReturn(streamlit, base="/proxy")(scope, None, send))
    return Response(messages).headers


def test_an_oidc_sign_in_returns_to_the_requested_page():
    login = returned(
        "/proxy/auth/login", "https://login.example", referer="https://dash.example/proxy/alerts?alert=a%20b"
    )
    assert login["location"] == "https://login.example"
    cookie = login["set-cookie"]
    common = {"name": COOKIE_BACK, "path": "/proxy", "httponly": "true", "samesite": "lax"}
    assert attributes(cookie) == {**common, "max-age": "600", "secure": "true"}

    callback = returned("/proxy/oauth2callback", cookie=cookie.partition(";")[0])
    assert callback["location"] == "/proxy/alerts?alert=a%20b"
    deleted = attributes(callback["set-cookie"])
    assert {**common, "max-age": "0"}.items() <= deleted.items() and f"{COOKIE_BACK}=" in callback[
        "set-cookie"
    ]
    assert returned("/proxy/oauth2callback") == {"location": "/"}
    assert returned("/proxy/alerts", cookie=cookie.partition(";")[0]) == {"location": "/"}


@pytest.mark.parametrize(
    "referer",
    [
        "https://evil.example/alerts",
        "https://dash.example//evil.example",
        "https://dash.example/" + "x" * 2000,
        "nonsense",
        "https://dash.example/é",
    ],
)
def test_only_pages_of_this_server_are_remembered_for_the_return(referer):
    assert "set-cookie" not in returned("/proxy/auth/login", referer=referer)


@pytest.mark.parametrize(
    "forged", ["https%3A%2F%2Fevil.example", "%2F%2Fevil.example", "%2Fa%0D%0Aset-cookie%3A x", ""]
)
def test_a_forged_return_cookie_is_ignored(forged):
    assert returned("/proxy/oauth2callback", cookie=f"{COOKIE_BACK}={forged}")["location"] == "/"
