"""The state of one `send`, which the progress display and the summary read."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from producer_core.cli.send.keep_dead_letters import KeptDeadLetters

if TYPE_CHECKING:
    from producer_core.cli.send.file_progress import FileProgress
    from producer_core.cli.send.rows import InputRows
    from producer_core.producer.producer import ReliableKafkaProducer


@dataclass
class RunState:
    """Counts and outcome of one `send`. The sending thread writes them; the progress thread reads them.

    `progress` is None for an input that cannot be resumed. `position` is the line or row up to which every row was
    read. `covered` is how much of the content the accepted rows cover; see `InputRows.content`. `command` continues an interrupted send; see `resume_command`.
    """

    producer: ReliableKafkaProducer
    rows: InputRows
    topic: str
    progress: FileProgress | None = None
    delivery: str = "at_least_once"
    command: str = ""
    restart: bool = False

    phase: Literal["reading", "settling", "done"] = "reading"
    started: float = field(default_factory=time.monotonic)
    read: int = 0
    accepted: int = 0
    malformed: int = 0
    blank: int = 0
    already_done: int = 0
    position: int = 0
    covered: int = 0
    exhausted: bool = False
    interrupted: bool = False
    stopped: str = ""
    """Why the reading stopped before the end of the input."""
    problems: list[str] = field(default_factory=list)
    """The first malformed rows, each with its reason."""
    kept: KeptDeadLetters = field(default_factory=KeptDeadLetters)
    complete: bool = False
    dead_before: int = field(init=False)
    malformed_before: int = field(init=False)

    def __post_init__(self) -> None:
        self.position = self.rows.skip
        self.dead_before = 0 if self.progress is None else self.progress.dead
        self.malformed_before = 0 if self.progress is None else self.progress.malformed_rows

    @property
    def skipped_all(self) -> bool:
        """Whether --skip left out the whole input."""
        return self.exhausted and not self.read and self.rows.skip > 0

    @property
    def resume_command(self) -> str:
        """The command that continues this send, with --restart while a restart has sent nothing yet."""
        restart = self.restart and self.progress is not None and not self.progress.begun
        return f"{self.command} --restart" if restart else self.command

    def possibly_twice(self, counted: int) -> int:
        """Return the possible duplicates of all runs. `counted` are those of this run, which a saved progress includes."""
        if self.progress is None or self.delivery == "exactly_once":
            return counted
        return self.progress.possibly_twice

    @property
    def topic_unread(self) -> bool:
        return self.progress is not None and self.progress.topic_unread

    @property
    def held_back(self) -> list[int]:
        return [] if self.progress is None else self.progress.held_back
