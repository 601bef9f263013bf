"""The identity: a producer's session and the ids of its messages, with the journal or the input that they come from."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

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
    """A producer's session, as a store knows it: its 16 bytes, its first sequence, its journal's folder.

    `fresh`: no earlier process used it. Only the session of an input, whose ids are derived from its content, is not.
    """

    id: bytes
    fresh: bool = True
    first: int = 0
    folder: Path | None = None


class ProducerSession:
    """Holds the journal's folder and the transactional id's name from when it is made until `let_go`."""

    def __init__(
        self,
        guarantees: Guarantees,
        config: ClientConfig,
        stand_in: ReplayableSource | None,
        *,
        says: Callable[[str, str, str], None],
    ) -> None:
        self._guarantees = guarantees
        self._stand_in = stand_in
        self.journal = guarantees.journal(says) if stand_in is None else stand_in
        with self.or_let_go():
            guarantees.take_name(config, self.journal)
            self.ids = MessageIds(new_session()) if self.journal is None else self.journal.ids
            self.session = self.ids.session
            self.sequence: SequenceSource = (
                SequenceNumbers(getattr(self.journal, "next_sequence", 0))
                if stand_in is None
                else stand_in.numbers
            )

    @contextlib.contextmanager
    def or_let_go(self) -> Iterator[None]:
        """What fails while a producer is made must not keep the journal's folder."""
        try:
            yield
        except BaseException:
            self.let_go()
            raise

    def let_go(self) -> None:
        self._guarantees.leave_name()
        if self.journal is not None:
            self.journal.close()

    def next_id(self) -> str:
        return self.ids.text(self.sequence.take())

    def backlog(self, sender: FeederTarget) -> PendingLog | None:
        """Who keeps the messages of the sender until they are settled."""
        if self._stand_in is not None:
            return self._stand_in.keeper(sender)
        if self.journal is None:
            return None
        from producer_core.delivery.journal.journal_feeder import JournalFeeder

        return JournalFeeder(cast("Journal", self.journal), sender)

    def as_session(self) -> StoredSession:
        folder = self._guarantees.journal_dir
        return StoredSession(
            self.session.bytes,
            fresh=self._stand_in is None,
            first=self.ids.first,
            folder=None if folder is None else Path(folder).expanduser(),
        )
