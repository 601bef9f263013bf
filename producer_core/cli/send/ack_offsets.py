"""The offsets from which a topic must be read for the rows that a state file does not record as settled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from producer_core.cli.send.state_file import Partition
from producer_core.events import Acknowledged, Hook
from producer_core.metrics.ack_batch import Acknowledgements


class AckOffsets(Hook):
    """Keeps the highest acknowledged offset of each partition, and the last checkpoint of these offsets.

    A row that is enqueued after a checkpoint gets a higher offset than the checkpoint has for its partition. Once every
    row before the checkpoint is settled, only records above its offsets can belong to an unsettled row. `reached` is the
    number of rows that earlier runs may have sent; their records are below any checkpoint of this run.
    """

    def __init__(self, reached: int) -> None:
        self._latest: dict[Partition, int] = {}  # written on the poll thread
        self._checkpoint: dict[Partition, int] = {}
        self._rows = reached  # the rows that may have been sent before the checkpoint

    def acknowledged(self, batch: Sequence[Acknowledged]) -> None:
        columns = Acknowledgements.of(batch)
        for _, last in columns.runs():  # offsets rise within a run
            offset = columns.offsets[last]
            if offset is not None and offset >= 0:
                partition = (columns.topics[last], columns.partitions[last])
                self._latest[partition] = max(offset, self._latest.get(partition, -1))

    def advance(
        self, enqueued: Callable[[], int], all_settled: Callable[[int], bool]
    ) -> Mapping[Partition, int]:
        """Return the offsets of the last checkpoint and take a new one, once all rows before the last one are settled.

        `enqueued()` is the number of rows that were enqueued, `all_settled(rows)` whether the first rows are settled.
        """
        if not all_settled(self._rows):
            return {}
        settled = self._checkpoint
        # The offsets first: a row that is enqueued between the two statements has a higher offset.
        self._checkpoint = dict(self._latest)
        self._rows = enqueued()
        return settled
