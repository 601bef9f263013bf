"""Tell a broker's rejection of a token that ended from its rejection of the credentials."""

from __future__ import annotations

import math
import time

_PAUSE_S = 60.0
"""Seconds without a failure after which the next one is reported again."""
_OUTAGE_S = 3600.0
"""Seconds for which a failure explains rejections. librdkafka reports a failure once, and does not report that it has a token
again (rd_kafka_oauthbearer_set_token_failure0), so a longer time would hide credentials that brokers refuse."""
_RENEWAL_S = 180.0
"""Seconds for which a client may request a token before it reports a failure: it repeats the request four times, after 5, 10,
15 and 20 seconds, and each may take 20 seconds (rd_kafka_oidc_token_client_credentials_refresh_cb)."""
_ENDED = ("invalid_token", "Request not valid in current SASL state")
"""Texts of rejections that may mean an ended token: the status with which a broker rejects a token (RFC 7628, section 3.2.2),
and the error of a login on a connection whose session has ended with the token."""


class TokenOutage:
    """Knows since when clients obtain no token. librdkafka logs in with its latest token, even after the token's end.

    Used on the threads of the clients that share it.
    """

    def __init__(self) -> None:
        self._failed_at = -math.inf  # the times are monotonic
        self._rejected_since = math.inf  # since the last connection
        self._logged_in = False
        self._reported: set[str] = set()  # rejections since the last connection

    def connected(self) -> None:
        """Note that a broker accepted a login."""
        self._logged_in = True
        self._rejected_since = math.inf
        self._reported.clear()

    def failed(self) -> bool:
        """Note that a client obtained no token. Return whether to report that."""
        before, self._failed_at = self._failed_at, time.monotonic()
        return self._failed_at - before > _PAUSE_S

    def explains(self, rejection: str) -> bool:
        """Return whether a broker may have rejected a login only because the token has ended.

        This requires that an earlier token was accepted and that the broker does not give another reason. It is so for an hour
        after the latest failure to obtain a token, and without a failure for the first three minutes of the rejections.
        """
        now = time.monotonic()
        self._rejected_since = min(self._rejected_since, now)
        if not self._logged_in or not any(text in rejection for text in _ENDED):
            return False
        return now - self._failed_at <= _OUTAGE_S or now - self._rejected_since <= _RENEWAL_S

    def rejected(self, text: str) -> bool:
        """Note that a broker rejected a token that may have ended. Return whether to report that."""
        is_new = text not in self._reported
        self._reported.add(text)
        return is_new
