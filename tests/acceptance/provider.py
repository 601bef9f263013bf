"""Run an OpenID provider on loopback that validates requests strictly and lets the browser select a user."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import secrets
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT, SECRET = "producer-core", "the provider's secret"
SIGNED_IN_SINCE = 3 * 86400
"""Age of the user's session at the provider in seconds."""


class Provider:
    """Serve the provider for `users`, given by their email addresses.

    `tokens` lists the users of issued tokens, and `ended` the clients of ended sessions. `groups` is a claim of every
    user, and `access` is the length of an access token.
    """

    def __init__(self, users, redirect_uri, *, groups=(), access=22):
        self.users, self.redirect_uri = users, redirect_uri
        self._groups, self._access = list(groups), access
        self.tokens, self.ended = [], []
        self._codes = {}
        self._key = RSAKey.generate_key(2048, {"kid": "1", "use": "sig", "alg": "RS256"})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.issuer = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def metadata(self):
        names = {"authorization": "authorize", "token": "token", "end_session": "end"}
        return {
            "issuer": self.issuer,
            **{f"{name}_endpoint": f"{self.issuer}/{path}" for name, path in names.items()},
            "jwks_uri": f"{self.issuer}/keys",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "code_challenge_methods_supported": ["S256"],
        }

    def keys(self):
        return {"keys": [self._key.as_dict(private=False)]}

    def selection_page(self, query):
        """Return the page on which the user is selected; None if the request is invalid."""
        required = {"client_id": CLIENT, "redirect_uri": self.redirect_uri, "response_type": "code"}
        valid = all(query.get(name) == value for name, value in required.items())
        if not (
            valid
            and query.get("state")
            and query.get("nonce")
            and query.get("code_challenge_method") == "S256"
        ):
            return None
        links = "".join(
            f"<p><a href='/select?{html.escape(urlencode({**query, 'user': user}))}'>{user}</a></p>"
            for user in self.users
        )
        return f"<!doctype html><title>Provider</title><h1>Select a user</h1>{links}"

    def select(self, query):
        code = secrets.token_urlsafe(16)
        self._codes[code] = query
        return f"{self.redirect_uri}?{urlencode({'code': code, 'state': query['state']})}"

    def token(self, form, credentials):
        """Exchange a code for tokens once; return None if anything is invalid."""
        query = self._codes.pop(form.get("code"), None)
        proof = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if (
            query is None
            or credentials != f"{CLIENT}:{SECRET}"
            or form.get("redirect_uri") != self.redirect_uri
            or base64.urlsafe_b64encode(proof).decode().rstrip("=") != query["code_challenge"]
        ):
            return None
        now = int(time.time())
        claims = {
            "iss": self.issuer, "aud": CLIENT, "sub": str(self.users.index(query["user"])), "nonce": query["nonce"],
            "iat": now, "exp": now + 300, "auth_time": now - SIGNED_IN_SINCE, "email": query["user"],
            "email_verified": True, **({"groups": self._groups} if self._groups else {}),
        }  # fmt: skip
        self.tokens.append(query["user"])
        signed = jwt.encode({"alg": "RS256", "kid": "1"}, claims, self._key)
        return {
            "access_token": secrets.token_urlsafe(self._access)[: self._access],
            "token_type": "Bearer",
            "expires_in": 300,
            "id_token": signed,
        }

    def _handler(self):
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                path, query = urlsplit(self.path).path, one_each(urlsplit(self.path).query)
                if path == "/.well-known/openid-configuration":
                    return self.respond(provider.metadata())
                if path == "/keys":
                    return self.respond(provider.keys())
                if path == "/authorize" and (page := provider.selection_page(query)):
                    return self.respond(page)
                if path == "/select":
                    return self.redirect(provider.select(query))
                if path == "/end" and query.get("post_logout_redirect_uri") == provider.redirect_uri:
                    provider.ended.append(query.get("client_id"))
                    return self.redirect(provider.redirect_uri)
                return self.respond("invalid request", 400)

            def do_POST(self):
                form = one_each(self.rfile.read(int(self.headers["content-length"])).decode())
                scheme, _, value = self.headers.get("authorization", "").partition(" ")
                credentials = base64.b64decode(value).decode() if scheme == "Basic" else ""
                tokens = provider.token(form, credentials)
                self.respond(tokens or {"error": "invalid_grant"}, 200 if tokens else 400)

            def respond(self, content, status=200):
                body = (content if isinstance(content, str) else json.dumps(content)).encode()
                self.send_response(status)
                self.send_header(
                    "content-type", "text/html" if isinstance(content, str) else "application/json"
                )
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def redirect(self, address):
                self.send_response(302)
                self.send_header("location", address)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        return Handler


def one_each(query):
    return {name: values[0] for name, values in parse_qs(query).items()}
