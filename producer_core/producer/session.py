"""A producer's session: its message ids, and the journal or input that keeps its messages."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from producer_core._internal.home_folder import expand_user
from producer_core.config import ClientConfig
from producer_core.messages import MessageIds, SequenceNumbers, new_session
from producer_core.producer.guarantees import Guarantees

if TYPE_CHECKING:
    from producer_core.delivery.journal import Journal
    from producer_core.delivery.replayable_source import (
        FeederTarget,
        PendingLog,
        ReplayableSource,
        SequenceSource,
    )


@dataclass(frozen=True)
class StoredSession:
    """A producer's session as the store records it: its 16 bytes, its first sequence and its journal's directory.

    `fresh`: no earlier process used the session. Only the session of a replayable input, which is derived from the
    input's content, is used again.
    """

    id: bytes
    fresh: bool = True
    first: int = 0
    folder: Path | None = None


class ProducerSession:
    """Holds the journal's directory and the transactional id until `release`."""

    def __init__(
        self,
        guarantees: Guarantees,
        config: ClientConfig,
        source: ReplayableSource | None,
        *,
        on_notice: Callable[[str, str, str], None],
    ) -> None:
        self._guarantees = guarantees
        self._source = source
        self.journal = guarantees.journal(on_notice) if source is None else source
        with self.or_release():
            guarantees.reserve_transactional_id(config, self.journal)
            self.ids = MessageIds(new_session()) if self.journal is None else self.journal.ids
            self.id = self.ids.session
            self.sequence: SequenceSource = (
                SequenceNumbers(getattr(self.journal, "next_sequence", 0))
                if source is None
                else source.numbers
            )

    @contextlib.contextmanager
    def or_release(self) -> Iterator[None]:
        """Release the session if the creation of the producer fails."""
        try:
            yield
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        self._guarantees.release_transactional_id()
        if self.journal is not None:
            self.journal.close()

    def next_id(self) -> str:
        return self.ids.text(self.sequence.take())

    def pending_log(self, target: FeederTarget) -> PendingLog | None:
        """Return the log that keeps messages until they are settled; None without a journal or a replayable input."""
        if self._source is not None:
            return self._source.pending_log(target)
        if self.journal is None:
            return None
        from producer_core.delivery.journal.journal_feeder import JournalFeeder

        return JournalFeeder(cast("Journal", self.journal), target)

    def as_session(self) -> StoredSession:
        folder = self._guarantees.journal_dir
        return StoredSession(
            self.id.bytes,
            fresh=self._source is None,
            first=self.ids.first,
            folder=None if folder is None else expand_user(folder),
        )
