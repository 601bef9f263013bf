"""Open waves: one row claims the next records of a replay, and every other change finds them claimed."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from confluent_kafka import KafkaError

from producer_core import replay
from producer_core.delivery.record_batch import RecordBatch
from producer_core.dlq import DeadLetterFilter, DeadLetters, claim_and_settle, claim_wave, wave_records
from producer_core.dlq.files.exporter import export
from producer_core.errors import StoreTooNew
from producer_core.replay import claims as claims_module
from producer_core.replay.claims import ClaimsRefused, LeaseState, ReplayClaims
from producer_core.replay.dry_run import dry_run
from producer_core.replay.operation import cancel, end_abandoned
from producer_core.replay.outcome import AcknowledgedBatch, FailedReplay, RecordOutcome
from producer_core.replay.rejections import rejected_by_broker
from producer_core.store import Store, safe_verdicts
from tests.fixtures import clocked_store
from tests.fixtures.replays import (
    BY,
    CLUSTER,
    add_dead_letters,
    dead_letter,
    states,
    write_heartbeat,
)
from tests.unit.dlq.test_count import assert_counts

ALL = DeadLetterFilter()
LEASE = 15.0
clock, store = clocked_store.clock, clocked_store.store


def claims_of(store, clock, operation=None, *, owner="first", seen=None):
    """Take the operation, by default a new one of all dead letters."""
    operation = operation or plan(store, clock)
    claims = ReplayClaims(store, operation.operation_id, owner, lease=LEASE, clock=clock)
    assert claims.take(seen)
    return claims


def plan(store, clock, selection=ALL, **choices):
    return replay.plan(store, selection, who="me", origin="python", can_run=CLUSTER, clock=clock, **choices)


def claim(claims, wave=100, *, outcomes=(), acknowledged=(), busy=True, want=10):
    update = claims.settle_and_claim(outcomes, acknowledged=acknowledged, want=want, busy=busy, wave=wave)
    return update.dead_letters


def acknowledge(batch, first_offset=0):
    count = len(batch)
    return AcknowledgedBatch(batch, [0] * count, list(range(first_offset, first_offset + count)))


def waves(store):
    with store.borrow() as connection:
        return connection.execute("SELECT first_ord, last_ord FROM replay_waves ORDER BY 1").fetchall()


def ids_of(batch):
    return [record.message_id for record in batch]


def record_states(store, claims):
    rows = store.rows("operation_records", operation=claims.operation_id)
    return {row["message_id"]: row["state"] for row in rows}


def successor(store, clock, claims):
    """Take the operation from its dead owner."""
    operation = claims.get()
    clock.forward(LEASE + 1)
    seen = LeaseState(operation.operation_id, operation.owner, operation.lease_until)
    return claims_of(store, clock, operation, owner="second", seen=seen)


def test_one_row_claims_a_wave_and_its_settlement_closes_it(store, clock):
    ids = add_dead_letters(store, 30)
    claims = claims_of(store, clock)

    batch = claim(claims, wave=20)

    assert isinstance(batch, RecordBatch) and ids_of(batch) == ids[:20]
    assert waves(store) == [(1, 20)]
    assert set(states(store).values()) == {"dead"}

    clock.forward(1)
    rest = claim(claims, wave=20, acknowledged=[acknowledge(batch)])

    assert ids_of(rest) == ids[20:] and waves(store) == [(21, 30)]
    assert [states(store)[one] for one in ids] == ["replayed"] * 20 + ["dead"] * 10

    assert claim(claims, acknowledged=[acknowledge(rest, 20)], busy=False) == ()
    assert waves(store) == [] and claims.get().state == "done" and claims.get().acknowledged == 30
    assert_counts(store)
    with store.borrow() as connection:
        rows = connection.execute("SELECT operation_id, landed_offset FROM dead_letters ORDER BY accepted_at")
        assert rows.fetchall() == [(claims.operation_id, number) for number in range(30)]


@pytest.mark.parametrize("limit", (0, 400))  # with and without the trigger
def test_a_wave_is_settled_in_parts_and_across_its_end(store, clock, monkeypatch, limit):
    monkeypatch.setattr("producer_core.store.dead_letter_counts._TRIGGER_LIMIT", limit)
    ids = add_dead_letters(store, 30)
    claims = claims_of(store, clock)
    first = claim(claims, wave=20)

    second = claim(claims, wave=10, acknowledged=[acknowledge(first[:5])])
    assert waves(store) == [(6, 20), (21, 30)]

    spanning = RecordBatch.joined([first[12:], second[:4]])
    claim(claims, acknowledged=[acknowledge(first[5:12], 5), acknowledge(spanning, 12)], want=0)

    assert waves(store) == [(25, 30)]
    assert [states(store)[one] for one in ids] == ["replayed"] * 24 + ["dead"] * 6
    assert_counts(store)


def test_records_of_an_open_wave_are_not_claimed_again(store, clock):
    ids = add_dead_letters(store, 12)
    claims = claims_of(store, clock)
    first = claim(claims, wave=8)

    assert ids_of(claim(claims, wave=8)) == ids[8:]
    assert claim(claims, wave=8) == ()  # looks for pending records from the first one on
    assert claim(claims, wave=0) == ()
    assert len(first) == 8 and len(waves(store)) == 2


def test_the_successor_of_a_killed_owner_looks_for_the_whole_wave(store, clock):
    ids = add_dead_letters(store, 12)
    claims = claims_of(store, clock)
    claimed_at = clock.now
    claim(claims, wave=8)

    second = successor(store, clock, claims)

    orphans = second.orphans()
    assert ids_of(orphan.dead_letter for orphan in orphans) == ids[:8]
    assert {orphan.claimed_at for orphan in orphans} == {claimed_at}
    assert [states(store)[one] for one in ids] == ["replaying"] * 8 + ["dead"] * 4
    assert waves(store) == [] and set(record_states(store, second).values()) == {"claimed", "pending"}
    assert_counts(store)


def test_the_successor_looks_only_for_the_unsettled_part_of_a_wave(store, clock):
    ids = add_dead_letters(store, 12)
    claims = claims_of(store, clock)
    batch = claim(claims, wave=12)
    claim(claims, acknowledged=[acknowledge(batch[:7])], want=0)

    second = successor(store, clock, claims)

    assert ids_of(orphan.dead_letter for orphan in second.orphans()) == ids[7:]


def test_an_owner_that_lost_its_lease_settles_nothing_of_its_wave(store, clock):
    add_dead_letters(store, 5)
    claims = claims_of(store, clock)
    batch = claim(claims)
    successor(store, clock, claims)

    assert claims.settle_and_claim([], acknowledged=[acknowledge(batch)], want=5, busy=True, wave=5).over
    assert set(states(store).values()) == {"replaying"}


def test_dead_letters_of_an_open_wave_cannot_be_archived_and_are_settled(store, clock):
    ids = add_dead_letters(store, 12)
    claims = claims_of(store, clock)
    batch = claim(claims, wave=8)

    result = DeadLetters(store, clock=clock).archive(ALL, **BY)

    assert result.count == 4 and result.left == {"replaying": 8}
    claim(claims, acknowledged=[acknowledge(batch)], want=0)
    assert [states(store)[one] for one in ids] == ["replayed"] * 8 + ["archived"] * 4
    assert_counts(store)


def test_archived_dead_letters_are_purged_and_restored_while_a_wave_is_open(store, clock):
    ids = add_dead_letters(store, 12)
    dead = DeadLetters(store, clock=clock)
    dead.archive(replace(ALL, ids=tuple(ids[8:])), **BY)
    claims = claims_of(store, clock)
    batch = claim(claims, wave=8)

    phrase = dead.purge_phrase(replace(ALL, ids=tuple(ids[8:11])), min_age=0)
    purged = dead.purge(replace(ALL, ids=tuple(ids[8:11])), confirmation=phrase, min_age=0, **BY)
    assert purged.count == 3 and dead.restore(ALL, **BY).count == 1

    claim(claims, acknowledged=[acknowledge(batch)], want=0)
    assert [states(store)[one] for one in ids] == ["replayed"] * 8 + ["purged"] * 3 + ["dead"]
    assert_counts(store)


def test_another_replay_planned_before_the_wave_skips_its_dead_letters(store, clock):
    ids = add_dead_letters(store, 8)
    first = claims_of(store, clock)
    other = claims_of(store, clock, plan(store, clock, replace(ALL, ids=tuple(ids[:6]))), owner="other")
    batch = claim(first, wave=4)

    got = other.settle_and_claim([], want=10, busy=False, wave=10)

    assert ids_of(got.dead_letters) == ids[4:6]
    assert other.get().skipped == 4
    claim(first, acknowledged=[acknowledge(batch)], want=0)
    assert [states(store)[one] for one in ids[:4]] == ["replayed"] * 4


def test_a_replay_planned_during_the_wave_leaves_its_dead_letters_out(store, clock):
    ids = add_dead_letters(store, 8)
    claim(claims_of(store, clock), wave=5)

    assert plan(store, clock, replace(ALL, topic="orders")).total == 3
    assert [states(store)[one] for one in ids[:5]] == ["replaying"] * 5


def test_a_message_that_fails_again_meanwhile_stays_a_dead_letter(store, clock):
    ids = add_dead_letters(store, 5)
    claims = claims_of(store, clock)
    batch = claim(claims)

    DeadLetters(store, clock=clock).add([dead_letter(2, failed_at=9_000.0)])
    claim(claims, acknowledged=[acknowledge(batch)], want=0)

    assert [states(store)[one] for one in ids] == ["replayed"] * 2 + ["dead"] + ["replayed"] * 2
    assert_counts(store)


def test_records_of_a_wave_fail_and_return_one_by_one(store, clock):
    ids = add_dead_letters(store, 6)
    claims = claims_of(store, clock)
    claim(claims)
    death = FailedReplay("permanent", "X", "text", "f", "rejected", "why", 6_000.0, ())

    outcomes = [
        RecordOutcome(ids[0], "failed", "text", verdict="rejected", death=death),
        RecordOutcome(ids[1], "acknowledged", None, 0, 7),
        *(RecordOutcome(one, "pending") for one in ids[2:]),
    ]
    assert claim(claims, outcomes=outcomes) == ()
    assert [states(store)[one] for one in ids] == ["dead", "replayed"] + ["dead"] * 4
    assert [record_states(store, claims)[one] for one in ids] == ["failed", "acknowledged"] + ["pending"] * 4

    again = claim(claims)
    assert ids_of(again) == ids[2:]
    claim(claims, acknowledged=[acknowledge(again)], busy=False)
    assert claims.get().state == "done" and claims.get().acknowledged == 5
    assert_counts(store)


def test_a_wave_ends_before_the_first_record_that_needs_a_search(store, clock):
    DeadLetters(store).add(
        [
            dead_letter(number, verdict="possibly_persisted" if number in (5, 8) else "rejected")
            for number in range(10)
        ]
    )
    clock.forward(1_000_000)
    claims = claims_of(store, clock)

    first = claim(claims, want=2)

    assert isinstance(first, RecordBatch) and len(first) == 5 and waves(store) == [(1, 5)]
    second = claim(claims, want=2, acknowledged=[acknowledge(first)])
    assert not isinstance(second, RecordBatch) and len(second) == 2  # one by one, within the limit for those
    assert waves(store) == []


def test_dead_letters_in_another_order_than_they_are_stored_are_read_in_the_order_of_the_replay(store, clock):
    numbers = list(range(60))
    random.Random(3).shuffle(numbers)
    DeadLetters(store).add([dead_letter(number) for number in numbers])
    claims = claims_of(store, clock)

    seen, batch = [], claim(claims, wave=7)
    while batch:
        assert isinstance(batch, RecordBatch)
        seen += [record.value for record in batch]
        batch = claim(claims, wave=7, acknowledged=[acknowledge(batch)])

    assert seen == [b"v%d" % number for number in range(60)]


def test_rows_that_moved_since_the_claim_are_found_by_their_ids(store, clock):
    ids = add_dead_letters(store, 8)
    claims = claims_of(store, clock)
    batch = claim(claims)
    store.compact()
    with store.borrow(write=True) as connection:  # the trigger moves the rows
        connection.execute("UPDATE dead_letters SET quarantined = true WHERE message_id = ?", [ids[1]])

    claim(claims, acknowledged=[acknowledge(batch)], busy=False)

    assert set(states(store).values()) == {"replayed"} and claims.get().acknowledged == 8
    assert waves(store) == []


def test_an_export_says_that_dead_letters_of_an_open_wave_are_being_replayed(store, clock, tmp_path):
    add_dead_letters(store, 6)
    claim(claims_of(store, clock), wave=4)

    manifest = export(store, ALL, tmp_path / "out.jsonl", who="me", origin="cli")

    assert manifest.by_state == {"replaying": 4, "dead": 2}


def test_a_cancelled_replay_waits_for_the_search_of_its_open_wave(store, clock):
    ids = add_dead_letters(store, 6)
    claims = claims_of(store, clock)
    claim(claims, wave=4)
    claims.release()  # the owner ends without knowing the outcome

    write_heartbeat(store, clock.now)
    cancelled = replay.cancel(store, claims.operation_id, clock=clock, **BY)

    assert not cancelled.ended
    assert [record_states(store, claims)[one] for one in ids] == ["claimed"] * 4 + ["pending"] * 2


def require(store, feature):
    with store.borrow(write=True) as connection:
        connection.execute("INSERT INTO required_features VALUES (?, 0)", [feature])


def test_a_version_without_a_required_feature_adds_dead_letters_and_changes_none(store, clock):
    ids = add_dead_letters(store, 4)
    dead = DeadLetters(store, clock=clock)
    dead.archive(replace(ALL, ids=(ids[3],)), **BY)
    operation = plan(store, clock)
    claims = claims_of(store, clock, operation)
    claim(claims, wave=2)
    other = ReplayClaims(store, operation.operation_id, "other", lease=LEASE, clock=clock)
    require(store, "time_travel")
    before = states(store)

    for change in (
        lambda: claim(claims),
        lambda: claim(claims, wave=0),
        lambda: other.take(LeaseState(operation.operation_id, "first", claims.get().lease_until)),
        lambda: plan(store, clock, replace(ALL, topic="orders")),
        lambda: dead.archive(ALL, **BY),
        lambda: dead.restore(ALL, **BY),
        lambda: dead.purge(ALL, confirmation=dead.purge_phrase(ALL, min_age=0), min_age=0, **BY),
        lambda: dead.claim("x", ids),
    ):
        with pytest.raises(StoreTooNew, match=r"requires time_travel.*Upgrade"):
            change()
    assert states(store) == before

    write_heartbeat(store, clock.now)
    dead.add([dead_letter(9), dead_letter(0, failed_at=9_000.0)])
    assert len(states(store)) == 5 and Store.open(store.path).info().rows["dead_letters"] == 5
    assert_counts(store)


def test_a_claim_reads_no_more_records_than_fit(store, clock, monkeypatch):
    """Regression: all values of a wave were read, gigabytes of large records, to claim those that fit into 32 MiB."""
    add_dead_letters(store, 100, value=b"x" * 1_000)
    claims, read = claims_of(store, clock), []
    original = wave_records._facts
    monkeypatch.setattr(wave_records, "_facts", lambda *given: read.append(original(*given)) or read[-1])

    update = claims.settle_and_claim((), want=10, busy=True, wave=100, room=10_500)
    assert len(update.dead_letters) == 10
    assert claims.settle_and_claim((), want=10, busy=True, wave=100, room=500).dead_letters == ()
    assert [facts.number for facts in read] == [10]

    alone = claims.settle_and_claim((), want=10, busy=False, wave=100, room=500)
    assert len(alone.dead_letters) == 1  # larger than the limit


def test_no_view_calls_the_wave_of_a_killed_runner_safe(store, clock):
    """Regression: until the next change of a dead letter, a dry run said that no broker has these records."""
    ids = add_dead_letters(store, 6)
    claim(claims_of(store, clock), wave=4)

    assert dry_run(store, ALL).total == 2
    assert set(states(store).values()) == {"dead"}

    clock.forward(LEASE + 1)
    end_abandoned(store, clock.now)

    assert [states(store)[one] for one in ids] == ["replaying"] * 4 + ["dead"] * 2
    assert dry_run(store, ALL).total == 2
    assert waves(store) == []
    assert_counts(store)


def test_the_wave_of_a_live_runner_stays_open_when_abandoned_replays_are_looked_for(store, clock):
    add_dead_letters(store, 6)
    claim(claims_of(store, clock), wave=4)
    end_abandoned(store, clock.now)

    assert waves(store) == [(1, 4)]


def test_a_member_of_a_wave_that_fails_again_still_belongs_to_its_replay(store, clock):
    add_dead_letters(store, 3)
    claims = claims_of(store, clock)
    claim(claims, wave=3)
    DeadLetters(store).add([replace(dead_letter(1), failed_at=clock.now, error_text="again")])

    with store.borrow() as connection:
        found = connection.execute("SELECT DISTINCT operation_id FROM dead_letters").fetchall()
    assert found == [(claims.operation_id,)]


def test_a_version_without_a_required_feature_cancels_no_replay(store, clock):
    """Its claims may be in a form that this version does not see."""
    add_dead_letters(store, 3)
    operation = plan(store, clock)
    with store.borrow(write=True) as connection:
        connection.execute("INSERT INTO required_features VALUES ('time_travel', 0)")

    with pytest.raises(StoreTooNew, match="time_travel"):
        cancel(store, operation.operation_id, clock=clock, **BY)
    assert end_abandoned(store, clock.now) == []


def many(count, **changes_of):
    """Return dead letters, of which `changes_of` gives the changes by number."""
    return [dead_letter(number, **changes_of.get(f"_{number}", {})) for number in range(count)]


def replay_all(claims, wave, want=1_000):
    """Claim and acknowledge everything. Return the size of each claim, negative if the records were claimed one by one."""
    sizes, update = [], claims.settle_and_claim([], want=want, busy=False, wave=wave)
    while not update.over:
        claimed, outcomes, acknowledged = update.dead_letters, [], []
        if isinstance(claimed, RecordBatch):
            sizes.append(len(claimed))
            acknowledged = [acknowledge(claimed)]
        else:
            sizes.append(-len(claimed))
            outcomes = [RecordOutcome(one.message_id, "acknowledged", None, 0, 1) for one in claimed]
        update = claims.settle_and_claim(
            outcomes, acknowledged=acknowledged, want=want, busy=False, wave=wave
        )
    return sizes


def test_one_record_that_cannot_be_claimed_leaves_the_others_to_waves(store, clock, monkeypatch):
    """Regression: after one archived dead letter, the next thousands of records were claimed one by one."""
    monkeypatch.setattr(claim_wave, "_ROWS_BETWEEN_WAVES", 10)
    ids = add_dead_letters(store, 300)
    operation = plan(store, clock)
    DeadLetters(store, clock=clock).archive(replace(ALL, ids=(ids[120],)), **BY)
    claims = claims_of(store, clock, operation)

    assert replay_all(claims, wave=100) == [100, 20, 100, 79]

    ended = claims.get()
    assert (ended.acknowledged, ended.skipped) == (299, 1)
    assert states(store)[ids[120]] == "archived"
    assert_counts(store)


def test_one_record_that_needs_a_search_leaves_the_others_to_waves(store, clock, monkeypatch):
    monkeypatch.setattr(claim_wave, "_ROWS_BETWEEN_WAVES", 10)
    doubtful = {"verdict": "possibly_persisted"}
    DeadLetters(store).add(many(300, _0=doubtful, _150=doubtful, _155=doubtful))
    clock.forward(1_000_000)
    claims = claims_of(store, clock)

    assert replay_all(claims, wave=100) == [-1, 100, 49, -6, 100, 44]
    assert claims.get().acknowledged == 300
    assert_counts(store)


def test_all_records_that_cannot_be_claimed_are_skipped_in_one_update(store, clock, monkeypatch):
    monkeypatch.setattr(claims_module, "_SKIP_S", 60.0)
    ids = add_dead_letters(store, 50)
    operation = plan(store, clock)
    DeadLetters(store, clock=clock).archive(replace(ALL, ids=tuple(ids)), **BY)
    claims = claims_of(store, clock, operation)

    assert claims.settle_and_claim([], want=10, busy=False, wave=100).over
    assert claims.get().skipped == 50


def test_a_small_replay_of_a_large_store_scans_no_table_for_records_to_claim_alone(store, clock, monkeypatch):
    add_dead_letters(store, 20)
    claims, ran, original = claims_of(store, clock), [], claim_wave.run
    monkeypatch.setattr(wave_records, "prefers_full_scan", lambda *_: False)
    monkeypatch.setattr(
        claim_wave, "run", lambda *given, **named: ran.append(given[1]) or original(*given, **named)
    )

    assert len(claim(claims)) == 10  # one by one, by the index
    assert "replay_alone_by_plan" in ran and "replay_claimed_alone" not in ran


def test_records_that_became_doubtful_since_the_plan_are_looked_for_once(store, clock, monkeypatch):
    """Otherwise each claim of a canary would scan the table: records found on their topic do not count for it."""
    add_dead_letters(store, 60)
    claims, ran, original = claims_of(store, clock), [], claim_wave.run
    with store.borrow(write=True) as connection:
        safe_verdicts.revoke(connection, "Revoked.")
    monkeypatch.setattr(
        claim_wave, "run", lambda *given, **named: ran.append(given[1]) or original(*given, **named)
    )

    assert replay_all(claims, wave=100, want=10) == [-10] * 6
    assert ran.count("replay_claimed_alone") == 2


def test_a_verdict_revoked_while_its_record_is_in_a_wave_stays_doubtful_after_a_failure(
    store, clock, tmp_path
):
    """Regression: the failure made it safe again, although the exported copy may be sent elsewhere."""
    ids = add_dead_letters(store, 3)
    claims = claims_of(store, clock)
    batch = claim(claims)
    export(store, ALL, tmp_path / "out.jsonl", who="me", origin="cli")

    rejected = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    outcomes = [rejected_by_broker(record, rejected, clock.now) for record in batch]
    claim(claims, outcomes=outcomes, want=0)

    for found in map(DeadLetters(store).get, ids):
        assert found.verdict == "possibly_persisted"
        assert "export" in found.verdict_reason and found.verdict_reason.endswith("not on its topic.")


def test_what_was_sent_is_settled_although_the_store_requires_a_new_feature(store, clock):
    """Regression: the refusal of the next claim rolled the acknowledgements back, again and again."""
    ids = add_dead_letters(store, 6)
    claims = claims_of(store, clock)
    sent = claim(claims, wave=4)
    require(store, "time_travel")

    with pytest.raises(StoreTooNew, match=r"requires time_travel.*Upgrade"):
        claim(claims, acknowledged=[acknowledge(sent)], wave=4)

    assert [states(store)[one] for one in ids] == ["replayed"] * 4 + ["dead"] * 2
    assert waves(store) == [] and claims.get().acknowledged == 4
    claims.release()
    assert claims.get().owner is None


def test_a_cancelled_replay_is_released_although_the_store_requires_a_new_feature(store, clock):
    ids = add_dead_letters(store, 6)
    claims = claims_of(store, clock)
    sent = claim(claims, wave=4)
    replay.cancel(store, claims.operation_id, clock=clock, **BY)
    require(store, "time_travel")

    assert claims.settle_and_claim([], acknowledged=[acknowledge(sent)], want=4, busy=False, wave=4).over

    assert [states(store)[one] for one in ids] == ["replayed"] * 4 + ["dead"] * 2
    assert (claims.get().state, claims.get().owner, claims.get().finished_at) == ("cancelled", None, None)


def test_a_stopped_replay_does_not_run_on_although_the_store_requires_a_new_feature(store, clock):
    """Regression: it could neither claim nor end, and renewed its lease forever."""
    ids = add_dead_letters(store, 6)
    claims = claims_of(store, clock)
    sent = claim(claims, wave=4)
    require(store, "time_travel")

    stopped = {"want": 0, "stop": "too many failures"}
    assert not claims.settle_and_claim([], busy=True, **stopped).over
    with pytest.raises(ClaimsRefused, match=r"requires time_travel.*Upgrade"):
        claims.settle_and_claim([], acknowledged=[acknowledge(sent)], busy=False, **stopped)
    assert [states(store)[one] for one in ids] == ["replayed"] * 4 + ["dead"] * 2


def test_many_records_that_cannot_be_claimed_are_skipped_in_several_updates(store, clock, monkeypatch):
    """One update would lock the store for minutes, and lose the lease."""
    ids = add_dead_letters(store, 50)
    operation = plan(store, clock)
    DeadLetters(store, clock=clock).archive(replace(ALL, ids=tuple(ids)), **BY)
    claims = claims_of(store, clock, operation)
    monkeypatch.setattr(claims_module, "_SKIP_S", -1.0)

    update = claims.settle_and_claim([], want=10, busy=False, wave=100)
    assert not update.over and not update.dead_letters and 0 < claims.get().skipped < 50
    while not update.over:
        update = claims.settle_and_claim([], want=10, busy=False, wave=100)
    assert claims.get().skipped == 50


def test_records_of_a_wave_are_joined_with_others_that_were_claimed_one_by_one(store, clock, monkeypatch):
    """Regression: the further columns of a wave ended the replay with an error."""
    monkeypatch.setattr(claim_and_settle, "MIN_BATCH", 1)
    ids = add_dead_letters(store, 10)
    claims = claims_of(store, clock)
    wave, singles = claim(claims, wave=6), claim(claims, wave=0)
    assert isinstance(wave, RecordBatch) and isinstance(singles, RecordBatch)

    for parts in ([wave, singles], [singles, wave]):
        joined = RecordBatch.joined(parts)
        assert ids_of(joined) == [one for part in parts for one in ids_of(part)]
        assert (joined.size, sorted(ids_of(joined))) == (wave.size + singles.size, sorted(ids))
