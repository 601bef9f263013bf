"""Obtain SASL/OAUTHBEARER tokens from a user's `oauth_cb`, with a time limit and a check of what it returns.

confluent-kafka aborts the process if a callback returns None, waits 10 seconds for the first token without the callback's
error, and waits for a callback that hangs when a client is closed.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from producer_core._internal.log_fields import with_fields
from producer_core._internal.masking import mask_or_hide
from producer_core._internal.queued_logger import queued_logger
from producer_core.errors import TokenUnavailable

logger = queued_logger(__name__)

TOKEN_FAILED = "Failed to acquire SASL OAUTHBEARER token: "  # noqa: S105  a text
"""The start of librdkafka's text when a callback or a token endpoint provides no token."""
_NO_TOKEN = "No token was obtained: "  # noqa: S105
_CALLBACK_RAISED = "OAuth callback raised exception"
_LIMIT_S = 10.0
_MAX_OVERDUE = 5
"""Calls of one callback beyond the time limit, each on a thread of its own, after which it is called seldom."""
_OVERDUE_PAUSES_S = 300.0, 1200.0
"""Seconds until it is called again then: doubled with each further call that does not return, up to the second figure."""
_SHORT_LIFE_S = 2.0
"""A client may take this long to accept its first token, which must not have ended until then."""
_LATEST_EXPIRY = 1e11
"""An expiry time above this is in milliseconds: in seconds it is in the year 5138."""
_EARLIEST_EXPIRY = 1e9
"""An expiry time below this is in 2001 or earlier, so it is probably the number of seconds until the token ends."""
_TOKEN = re.compile(r"[\x21-\x7e]+")
_EXTENSION_NAME = re.compile(r"(?!auth\Z)[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x20-\x7e\t\r\n]*")
"""What librdkafka accepts (check_oauthbearer_extension_key, check_oauthbearer_extension_value)."""
_CALLBACK_FIX = "Check oauth_cb: it must return a token and its expiry time in seconds since 1970."

OAuthCallback = Callable[[str], Any]
Client = TypeVar("Client")


class TokenFailed(TokenUnavailable, KafkaException):  # type: ignore[misc]  # confluent_kafka has no types for it
    """A client has no token to begin with. Code that handles Kafka errors handles it as a failed authentication."""

    # A traceback names the public class, which callers catch.
    __module__, __qualname__ = TokenUnavailable.__module__, TokenUnavailable.__qualname__

    def __init__(self, reason: str) -> None:
        TokenUnavailable.__init__(self, f"{_NO_TOKEN}{reason}.", fix=_CALLBACK_FIX)
        self.reason = reason
        self.args = (KafkaError(KafkaError._AUTHENTICATION, self.what.rstrip(".")),)

    def __str__(self) -> str:
        return f"{self.what} {self.fix}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _token_failed, (self.reason,)


def _token_failed(reason: str) -> TokenFailed:
    """Return the error, for pickle, which would look for the class under its public name."""
    return TokenFailed(reason)


class TokenSource:
    """Calls a user's `oauth_cb` for the Kafka clients. Each client calls it when it starts and before its token ends."""

    def __init__(
        self,
        callback: OAuthCallback,
        *,
        limit_s: float = _LIMIT_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._callback = callback
        self._limit_s = limit_s
        self._clock = clock
        self._lock = threading.Lock()  # guards the two attributes below
        self._overdue = 0  # calls that have not returned within the limit
        self._next_call_at = -math.inf  # monotonic; applies while too many calls are overdue
        self._failing = False

    def __call__(self, config: str = "") -> tuple[Any, ...]:
        """Return a token, its expiry time in seconds since 1970 and, if the callback has them, principal and extensions.

        Raise TokenFailed if the callback raises, does not return within the time limit, or returns anything else. The
        error contains neither a token nor a secret.
        """
        try:
            token = self._checked(self._called(config))
        except TokenFailed as error:
            self._failing = True
            logger.warning(**with_fields("token not obtained", reason=error.reason))
            raise
        if self._failing:
            self._failing = False
            logger.warning(**with_fields("token obtained again"))
        return token

    def first(self, config: str = "") -> tuple[Any, ...]:
        """Return a token for the start of a client. If it ends within two seconds, wait for its end and request another.

        A callback that keeps its token until the end returns the same one until then.
        """
        token = self(config)
        left = token[1] - self._clock()
        if left > _SHORT_LIFE_S:
            return token
        threading.Event().wait(max(0.0, left) + 0.05)
        return self(config)

    def _called(self, config: str) -> Any:
        """Call the callback on a thread, because a call that hangs would block the client, also when it is closed."""
        self._admit()
        result: Future[Any] = Future()
        thread = threading.Thread(
            target=self._run, args=(config, result), name="producer-core-oauth", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as no_thread:
            raise TokenFailed(f"no thread can be started for oauth_cb: {no_thread}") from None
        try:
            error = result.exception(self._limit_s)
        except TimeoutError:
            self._leave(result)
            raise TokenFailed(f"oauth_cb did not return within {self._limit_s:g} s") from None
        if error is not None:
            raise TokenFailed(f"oauth_cb raised {_describe(error)}") from None
        return result.result()

    def _admit(self) -> None:
        """Raise TokenFailed if too many calls are overdue, except for one call after each pause."""
        with self._lock:
            if self._overdue < _MAX_OVERDUE:
                return
            if time.monotonic() < self._next_call_at:
                raise TokenFailed(f"{self._overdue} earlier calls of oauth_cb have not returned")
            self._set_pause()

    def _leave(self, result: Future[Any]) -> None:
        """Count a call as overdue until it returns."""
        with self._lock:
            self._overdue += 1
            self._set_pause()
        result.add_done_callback(self._returned)  # called at once if the call has returned by now

    def _set_pause(self) -> None:
        shortest, longest = _OVERDUE_PAUSES_S
        pause = shortest * 2.0 ** min(max(0, self._overdue - _MAX_OVERDUE), 10)
        self._next_call_at = time.monotonic() + min(pause, longest)

    def _returned(self, _result: Future[Any]) -> None:
        with self._lock:
            self._overdue -= 1

    def _run(self, config: str, result: Future[Any]) -> None:
        try:
            token = self._callback(config)
        except BaseException as error:  # noqa: BLE001  a user's function; the thread has no other way to report it
            result.set_exception(error)
        else:
            result.set_result(token)

    def _checked(self, returned: Any) -> tuple[Any, ...]:
        if not isinstance(returned, tuple | list) or not 2 <= len(returned) <= 4:
            raise TokenFailed(f"oauth_cb returned {_kind(returned)}")
        token, expiry, *rest = returned
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise TokenFailed(
                "oauth_cb returned a token that is not a string of printable ASCII characters without spaces"
            )
        return (token, self._expiry(expiry), *_principal_and_extensions(*rest))

    def _expiry(self, expiry: Any) -> float:
        if not isinstance(expiry, int | float) or isinstance(expiry, bool):
            raise TokenFailed(f"oauth_cb returned an expiry time of type {type(expiry).__name__}")
        if isinstance(expiry, float) and not math.isfinite(expiry):
            raise TokenFailed(f"oauth_cb returned the expiry time {expiry}")
        if 0 <= expiry < _EARLIEST_EXPIRY:
            raise TokenFailed(
                f"oauth_cb returned the expiry time {expiry:g}, which looks like a duration, not like a time"
            )
        if expiry > _LATEST_EXPIRY:
            raise TokenFailed("oauth_cb returned an expiry time in milliseconds")
        if (ago := self._clock() - max(expiry, 0)) >= 0:
            raise TokenFailed(f"oauth_cb returned a token that ended {ago:.0f} s ago")
        return float(expiry)


def token_source(callback: OAuthCallback) -> TokenSource:
    """Return the source for a callback. A source is returned as it is."""
    return callback if isinstance(callback, TokenSource) else TokenSource(callback)


def new_client(create: Callable[..., Client], settings: Mapping[str, Any], **options: Any) -> Client:
    """Return a new client. With `oauth_cb`, it has a token.

    Raise TokenFailed if `oauth_cb` provides no token, or the client does not accept it. `create` blocks for up to 10 seconds
    while the client waits for a token.
    """
    try:
        return create(with_first_token(settings), **options)
    except TokenFailed:
        raise
    except KafkaException as error:
        if error.args[0].code() != KafkaError.SASL_AUTHENTICATION_FAILED:
            raise
        raise TokenFailed("the client accepted no token of oauth_cb in time") from error


def with_first_token(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings for one new client, with a token for its start if they have an `oauth_cb`.

    Raise TokenFailed if there is none, so that the failure is known at once and with its reason.
    """
    callback = settings.get("oauth_cb")
    if callback is None:
        return dict(settings)
    source = token_source(callback)
    first = [source.first(str(settings.get("sasl.oauthbearer.config") or ""))]

    def next_token(config: str) -> tuple[Any, ...]:
        return first.pop() if first else source(config)

    return {**settings, "oauth_cb": next_token}


def is_token_failure(error: KafkaError) -> bool:
    """Return whether a client has no token, as opposed to a token that the broker rejects."""
    return bool(
        error.code() == KafkaError._AUTHENTICATION and error.str().startswith((TOKEN_FAILED, _NO_TOKEN))
    )


def describe_failure(text: str) -> str:
    """Return librdkafka's text without the form `token: value`, which the masking of secrets would replace."""
    if not text.startswith(TOKEN_FAILED):
        return text
    reason = text.removeprefix(TOKEN_FAILED)
    return _NO_TOKEN + ("oauth_cb failed" if reason == _CALLBACK_RAISED else reason)


def _principal_and_extensions(principal: Any = "", extensions: Any = None) -> tuple[Any, ...]:
    if not isinstance(principal, str):
        raise TokenFailed(f"oauth_cb returned a principal of type {type(principal).__name__}")
    if "\0" in principal or not _is_unicode(principal):
        raise TokenFailed("oauth_cb returned a principal with a NUL character or a lone surrogate")
    if extensions is None:
        return (principal,) if principal else ()
    if not isinstance(extensions, Mapping) or not all(
        isinstance(name, str)
        and _EXTENSION_NAME.fullmatch(name)
        and isinstance(value, str)
        and _EXTENSION_VALUE.fullmatch(value)
        for name, value in extensions.items()
    ):
        raise TokenFailed(
            "oauth_cb returned extensions that the client refuses: a name consists of a-z and A-Z and is not auth, and a value "
            "is a string of printable ASCII characters, spaces, tabs and line ends"
        )
    return principal, dict(extensions)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kind(returned: Any) -> str:
    return "None" if returned is None else f"a value of type {type(returned).__name__}"


def _describe(error: BaseException) -> str:
    """Return the type and the text of a user's exception. Secrets in the text are replaced."""
    try:
        text = mask_or_hide(str(error))
    except Exception:  # noqa: BLE001  an exception's own __str__
        text = ""
    return f"{type(error).__name__}: {text:.300}".rstrip(": ").rstrip(".")
