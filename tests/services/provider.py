"""An OpenID provider on loopback, strict where the standard is: whoever opens it chooses who he is."""

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
DAYS = 3 * 86400
"""How long the provider remembers people already: who comes has signed in there days ago."""


class Provider:
    """`people` are addresses; `tokens` counts how often somebody came in, `ended` who signed out there.

    `groups` are claims of everybody, and `access` is the length of an access token.
    """

    def __init__(self, people, redirect_uri, *, groups=(), access=22):
        self.people, self.redirect_uri = people, redirect_uri
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

    def ask(self, query):
        """The page on which a person chooses; None where the question is not in order."""
        wanted = {"client_id": CLIENT, "redirect_uri": self.redirect_uri, "response_type": "code"}
        good = all(query.get(name) == value for name, value in wanted.items())
        if not (
            good
            and query.get("state")
            and query.get("nonce")
            and query.get("code_challenge_method") == "S256"
        ):
            return None
        links = "".join(
            f"<p><a href='/choose?{html.escape(urlencode({**query, 'who': who}))}'>{who}</a></p>"
            for who in self.people
        )
        return f"<!doctype html><title>Provider</title><h1>Who are you?</h1>{links}"

    def choose(self, query):
        code = secrets.token_urlsafe(16)
        self._codes[code] = query
        return f"{self.redirect_uri}?{urlencode({'code': code, 'state': query['state']})}"

    def token(self, form, credentials):
        """What is given for a code, once; None where anything is wrong."""
        asked = self._codes.pop(form.get("code"), None)
        proof = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if (
            asked is None
            or credentials != f"{CLIENT}:{SECRET}"
            or form.get("redirect_uri") != self.redirect_uri
            or base64.urlsafe_b64encode(proof).decode().rstrip("=") != asked["code_challenge"]
        ):
            return None
        now = int(time.time())
        claims = {
            "iss": self.issuer, "aud": CLIENT, "sub": str(self.people.index(asked["who"])), "nonce": asked["nonce"],
            "iat": now, "exp": now + 300, "auth_time": now - DAYS, "email": asked["who"], "email_verified": True,
            **({"groups": self._groups} if self._groups else {}),
        }  # fmt: skip
        self.tokens.append(asked["who"])
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
                    return self.say(provider.metadata())
                if path == "/keys":
                    return self.say(provider.keys())
                if path == "/authorize" and (page := provider.ask(query)):
                    return self.say(page)
                if path == "/choose":
                    return self.lead(provider.choose(query))
                if path == "/end" and query.get("post_logout_redirect_uri") == provider.redirect_uri:
                    provider.ended.append(query.get("client_id"))
                    return self.lead(provider.redirect_uri)
                return self.say("not in order", 400)

            def do_POST(self):
                form = one_each(self.rfile.read(int(self.headers["content-length"])).decode())
                kind, _, given = self.headers.get("authorization", "").partition(" ")
                known = base64.b64decode(given).decode() if kind == "Basic" else ""
                answer = provider.token(form, known)
                self.say(answer or {"error": "invalid_grant"}, 200 if answer else 400)

            def say(self, content, status=200):
                body = (content if isinstance(content, str) else json.dumps(content)).encode()
                self.send_response(status)
                self.send_header(
                    "content-type", "text/html" if isinstance(content, str) else "application/json"
                )
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def lead(self, address):
                self.send_response(302)
                self.send_header("location", address)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        return Handler


def one_each(query):
    return {name: values[0] for name, values in parse_qs(query).items()}
