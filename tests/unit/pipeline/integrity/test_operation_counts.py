"""The cost of an audit in function calls, which `make check` can hold on any machine."""

from __future__ import annotations

import uuid

from producer_core.pipeline.integrity.spans import PartitionBounds
from tests.fixtures.comparing import InMemory, acked, audited, batch, log
from tests.fixtures.operation_counts import counts_of

SESSION = uuid.UUID(int=1)


def audit_of(count):
    """Return what the audit of this many acknowledged records does on the driver."""
    records = log([(0, number, SESSION, number) for number in range(count)])
    ledger = acked(SESSION, *((0, number, number) for number in range(count)))
    values, bounds = [batch("p", 0, ledger)], {0: PartitionBounds(0, count, count)}
    backend = InMemory()
    reports = []
    counts = counts_of(lambda: reports.append(audited(backend, records, values, bounds)))
    assert (reports[0].records, reports[0].acknowledged) == (count, count)
    return counts


def test_an_audit_calls_as_many_functions_for_2000_records_as_for_200():
    """The rules are SQL. Each record once cost a call, and each group of records one Spark action."""
    small, large = audit_of(200), audit_of(2_000)

    assert large.calls <= 1.2 * small.calls
