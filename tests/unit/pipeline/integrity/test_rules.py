"""The audit's rules, against plain loops over random logs and ledgers."""

from __future__ import annotations

import random
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producer_core.pipeline.integrity import compare
from producer_core.pipeline.integrity.spans import PartitionBounds
from tests.fixtures.comparing import (
    CLUSTER,
    KINDS,
    TOPIC,
    InMemory,
    acked,
    audited,
    batch,
    differences,
    log,
    planned,
)
from tests.fixtures.planting import LEDGER_BATCH, ledger_values, plant, truth

SESSIONS = (uuid.UUID(int=1), uuid.UUID(int=2**127 + 5))
SEQS = (0, 1, 2, 3, 4094, 4095, 4096, 4097, 9_000)


class Made:
    """A random log and its ledger: losses, copies, other orders, missing entries and repeated entries."""

    def __init__(self, seed):
        self.chance = chance = random.Random(seed)
        self.partitions = chance.randint(1, 3)
        self.rows = [row for number in range(self.partitions) for row in self.partition(number)]
        places = [(session, partition, seq, offset) for partition, offset, session, seq in self.rows]
        acked = {}
        for session, partition, seq, offset in places:  # an idempotent producer acknowledges a message once
            if chance.random() < 0.9:
                acked.setdefault((session, seq), (partition, offset))
        there = {(session, seq) for session, _, seq, _ in places}
        self.lost = {
            (session, seq) for session in SESSIONS for seq in SEQS if (session, seq) not in there and chance.random() < 0.3
        }  # fmt: skip
        for number, one in enumerate(sorted(self.lost, key=str)):
            acked[one] = (chance.randrange(self.partitions), 100 + number)
        self.acked = acked

    def partition(self, number):
        rows, offset = [], 0
        wanted = [(session, seq) for session in SESSIONS for seq in SEQS if self.chance.random() < 0.5]
        wanted += [one for one in wanted if self.chance.random() < 0.1]
        wanted.sort(
            key=lambda one: one[1] + self.chance.choice((0, 0, 0, self.chance.uniform(-5_000, 5_000)))
        )
        for session, seq in wanted:
            offset += self.chance.choice((1, 1, 1, 3))
            rows.append((number, offset, session, seq))
        return rows

    def values(self):
        """Return the acknowledgements in batches, of which one may be repeated under another number."""
        entries, batches = sorted(self.acked.items(), key=str), [[] for _ in range(3)]
        for one in entries:
            self.chance.choice(batches).append(one)
        if self.chance.random() < 0.3:
            batches.append(batches[0])
        return [
            batch("p", number, [row for session in SESSIONS for row in self.rows_of(session, part)])
            for number, part in enumerate(batches)
        ]

    @staticmethod
    def rows_of(session, part):
        return acked(
            session, *((partition, seq, offset) for (one, seq), (partition, offset) in part if one == session)
        )

    def expected(self):
        places = {}
        for partition, offset, session, seq in self.rows:
            places.setdefault((session, seq), []).append((partition, offset))
        home = {one: place[0] for one, place in self.acked.items()}
        originals = {
            min(found, key=lambda place: (place[0] != home.get(one), place)): one
            for one, found in places.items()
        }
        late, tops = set(), {}
        for (partition, _), (session, seq) in sorted(originals.items()):
            if tops.get((partition, session), -1) > seq:
                late.add((session, seq))
            tops[partition, session] = max(seq, tops.get((partition, session), -1))
        return {
            "lost": self.lost,
            "duplicated": {one for one, found in places.items() if len(found) > 1},
            "reordered": late,
            "unledgered": {*places} - {*self.acked},
        }


def report_of(records, values, bounds, *, by_sums, **more):
    with pytest.MonkeyPatch.context() as patched:
        if by_sums:
            patched.setattr(compare, "MAX_IDS", -1)
        return audited(InMemory(), records, values, bounds, **more)


@pytest.mark.slow
@settings(max_examples=30)
@given(seed=st.integers(0, 2**32))
def test_a_random_log_has_the_findings_of_plain_loops_by_ids_and_by_sums(seed):
    made = Made(seed)
    values, bounds = (
        made.values(),
        {number: PartitionBounds(0, 500, 500) for number in range(made.partitions)},
    )
    for by_sums in (False, True):
        report = report_of(log(made.rows), values, bounds, by_sums=by_sums)
        found = {kind: report.ids(kind) for kind in KINDS if report.ids(kind)}
        wanted = {
            kind: {f"{session}-{seq}" for session, seq in ids} for kind, ids in made.expected().items() if ids
        }
        assert {kind: {*ids} for kind, ids in found.items()} == wanted
        assert (report.records, report.acknowledged) == (len(made.rows), len(made.acked))


@pytest.mark.slow
@settings(max_examples=10)
@given(
    seed=st.integers(1, 1_000), share=st.sampled_from([0.0, 0.3, 0.8]), hidden=st.booleans(), by_sums=st.booleans()
)  # fmt: skip
def test_planted_faults_of_any_range_are_found(seed, share, hidden, by_sums):
    plan = plant(2_000 + LEDGER_BATCH, seed=seed, sessions=3, partitions=3, faults=5, foreign=9)
    begin = {number: int(one.end * share) for number, one in enumerate(plan.logs)}
    values = [value for _, value in ledger_values(plan, TOPIC, CLUSTER)]
    report = report_of(
        planned(plan, hidden=hidden), values, plan.edges(), by_sums=by_sums, begin=begin, fresh="false",
        isolation="read_uncommitted" if hidden else "read_committed",
    )  # fmt: skip
    assert differences(plan, report, truth(plan, start=begin, hidden=hidden)) == {}
