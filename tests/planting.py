"""A topic with planted faults and the ledger that goes with it: every offset is planned, so the truth is known by id.

`plant(20_000, seed=1)` plans; `truth` says, by another way than the job's, what an audit must find; `write` puts it on a
real Kafka, transactions and all. Everything follows from the seed, at any size.
"""

from __future__ import annotations

import struct
import uuid
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
import orjson
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from producer_core.metrics.ack_ledger import rows_of, unplaced_rows
from producer_core.pipeline.integrity.spans import PartitionBounds

FOREIGN = -1
TELLS = 2_000
"""Acknowledgements that a producer tells at once: one batch of its ledger."""

_SHIFT = 40
_FAULTS = ("lost", "same", "other", "moved", "unplaced", "landed", "dead")


@dataclass
class Log:
    """The records of one partition in the order of offsets, hidden ones among them; a marker takes an offset, too."""

    session: list = field(default_factory=list)  # arrays
    seq: list = field(default_factory=list)
    offset: list = field(default_factory=list)
    visible: list = field(default_factory=list)
    end: int = 0

    def add(self, session, seq, visible=True):
        """At the end; the offsets given."""
        offsets = np.arange(self.end, self.end + len(session))
        for column, values in (
            (self.session, session),
            (self.seq, seq),
            (self.offset, offsets),
            (self.visible, np.full(len(session), visible)),
        ):
            column.append(np.asarray(values, np.int64))
        self.end += len(session)
        return offsets


@dataclass
class Plan:
    """What will be on the topic, what was acknowledged, and how many of which fault were planted."""

    seed: int
    sessions: list
    logs: list
    acked: dict  # columns: session, seq, partition, offset (-1: unknown), tell
    dead_letters: list  # (session, seq) that were given up
    phases: list  # (turn, kind, partition, from, to): how the log came about, for `write`
    planted: dict  # fault: codes
    stable: dict = field(default_factory=dict)
    low: dict = field(default_factory=dict)
    silent: int | None = None  # the session without a ledger
    hole: tuple = ()  # (session, first, last): batches of its ledger that are missing

    @property
    def partitions(self):
        return len(self.logs)

    @property
    def records(self):
        return sum(sum(map(len, log.session)) for log in self.logs)

    def edges(self):
        return {
            number: PartitionBounds(self.low.get(number, 0), self.stable.get(number, log.end), log.end)
            for number, log in enumerate(self.logs)
        }

    def columns(self, *, hidden=False):
        """(partition, offset, session, seq) of what a reader sees, as arrays; with `hidden` of an uncommitted one."""
        found = defaultdict(list)
        for number, log in enumerate(self.logs):
            session, seq, offset, visible = (
                np.concatenate(column) for column in (log.session, log.seq, log.offset, log.visible)
            )
            seen = offset >= self.low.get(number, 0)
            if not hidden:
                seen &= (visible == 1) & (offset < self.stable.get(number, log.end))
            for name, values in (("session", session), ("seq", seq), ("offset", offset)):
                found[name].append(values[seen])
            found["partition"].append(np.full(int(seen.sum()), number))
        return {name: np.concatenate(parts) for name, parts in found.items()}

    def told(self):
        """The acknowledgements that are in the ledger: without the silent session and the hole."""
        keep = self.acked["session"] != (self.silent if self.silent is not None else -9)
        if self.hole:
            session, first, last = self.hole
            keep &= ~(
                (self.acked["session"] == session)
                & (self.acked["tell"] >= first)
                & (self.acked["tell"] <= last)
            )
        return {name: values[keep] for name, values in self.acked.items()}

    def ids(self, codes):
        """Message ids of codes, as people read them."""
        return {f"{self.sessions[int(one) >> _SHIFT]}-{int(one) & ((1 << _SHIFT) - 1)}" for one in codes}

    def codes(self, ids):
        """The other way round."""
        number = {str(session): place for place, session in enumerate(self.sessions)}
        parts = [one.rpartition("-") for one in ids]
        return {(number[session] << _SHIFT) + int(seq) for session, _, seq in parts}


def code(session, seq):
    return (np.asarray(session, np.int64) << _SHIFT) + np.asarray(seq, np.int64)


def plant(
    count,
    *,
    seed=1,
    partitions=4,
    sessions=5,
    faults=10,
    foreign=50,
    transactions=True,
    expired=True,
    silent=True,
    hole=True,
):
    """`count` messages of `sessions` producers, interleaved over the partitions at random, `faults` of each kind."""
    chance = np.random.default_rng(seed)
    names = [
        uuid.UUID(bytes=struct.pack(">QQ", (0x0190 << 48) | 0x7000 + n, (2 << 62) | seed))
        for n in range(sessions + 1)
    ]
    main = _Main(chance, count, partitions, sessions, faults, foreign, silent)
    plan = Plan(seed, names, [Log() for _ in range(partitions)], {}, main.dead_letters, [], main.planted)
    main.lay(plan)
    acked = [main.acked(plan)]
    if transactions:
        acked += _transactions(plan, sessions, main.next_seq)
    columns = {name: np.concatenate([one[name] for one in acked]) for name in acked[0]}
    plan.acked = columns | {"tell": _tells(columns)}
    if silent:
        plan.silent = sessions - 1
    if hole:
        last = int(plan.acked["tell"][plan.acked["session"] == 1].max())
        if last >= 3:
            plan.hole = (1, 1, min(2, last - 1))
    if expired:
        plan.low[partitions - 1] = int(main.lengths[partitions - 1] * 0.3)
    return plan


class _Main:
    """The plain records and their faults; a record's `key` says where it comes in time."""

    def __init__(self, chance, count, partitions, sessions, faults, foreign, silent):
        self.session = chance.permutation(np.arange(count) % sessions)
        self.seq = np.empty(count, np.int64)
        for number in range(sessions):
            mine = self.session == number
            self.seq[mine] = np.arange(mine.sum())
        self.partition = chance.integers(partitions, size=count)
        self.key = np.arange(count, dtype=float)
        self.next_seq = [int((self.session == number).sum()) for number in range(sessions)]
        self.partitions = partitions
        speaking = np.flatnonzero(self.session != sessions - 1) if silent else np.arange(count)
        middle = speaking[(speaking > count * 0.02) & (speaking < count * 0.95)]
        drawn = chance.choice(middle, size=faults * len(_FAULTS), replace=False).reshape(len(_FAULTS), -1)
        self.chosen = dict(zip(_FAULTS, drawn, strict=True))
        there = self.partition[self.chosen["unplaced"]] < partitions - 1  # what has expired can be anywhere
        self.chosen["unplaced"] = self.chosen["unplaced"][there]
        self._move(chance, {int(one) for one in drawn.ravel()})
        self.planted = {
            name: code(self.session[which], self.seq[which]) for name, which in self.chosen.items()
        }
        gone = np.concatenate([self.chosen["lost"], self.chosen["dead"]])
        here = np.setdiff1d(np.arange(count), gone)
        copies = np.concatenate([self.chosen["same"], self.chosen["other"]])
        later = chance.random(len(copies)) * (count - self.key[copies]) * 0.9 + 0.5
        elsewhere = (
            self.partition[copies] + chance.integers(1, max(2, partitions), size=len(copies))
        ) % partitions
        elsewhere[: len(self.chosen["same"])] = self.partition[self.chosen["same"]]
        strangers = chance.random(foreign) * count
        self.log_session = np.concatenate(
            [self.session[here], self.session[copies], np.full(foreign, FOREIGN)]
        )
        self.log_seq = np.concatenate([self.seq[here], self.seq[copies], np.zeros(foreign, np.int64)])
        self.log_partition = np.concatenate(
            [self.partition[here], elsewhere, chance.integers(partitions, size=foreign)]
        )
        self.log_key = np.concatenate([self.key[here], self.key[copies] + later, strangers])
        self.dead_letters = [
            (int(self.session[one]), int(self.seq[one]))
            for name in ("landed", "dead")
            for one in self.chosen[name]
        ]

    def _move(self, chance, chosen):
        """Behind a later record of the same session and partition, up to 2,000 of them further."""
        order = np.lexsort((self.key, self.partition, self.session))
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        kept = []
        for one in self.chosen["moved"]:
            far = int(chance.choice([1, 2, 30, 2_000]))
            for step in range(far, 0, -1):
                at = place[one] + step
                target = order[at] if at < len(order) else one
                same = (
                    self.session[target] == self.session[one]
                    and self.partition[target] == self.partition[one]
                )
                if same and int(target) not in chosen:
                    self.key[one] = target + 0.1 + chance.random() * 0.1
                    kept.append(one)
                    break
        self.chosen["moved"] = np.array(kept, np.int64)

    def lay(self, plan):
        self.lengths = []
        self._keys = []
        for number, log in enumerate(plan.logs):
            mine = np.flatnonzero(self.log_partition == number)
            mine = mine[np.argsort(self.log_key[mine], kind="stable")]
            log.add(self.log_session[mine], self.log_seq[mine])
            self.lengths.append(len(mine))
            self._keys.append(self.log_key[mine])
            plan.phases.append((0, "plain", number, 0, log.end))

    def acked(self, plan):
        """Each message at its offset; a lost one where the next record of its partition is."""
        told = np.setdiff1d(
            np.arange(len(self.seq)), np.concatenate([self.chosen["landed"], self.chosen["dead"]])
        )
        told = told[np.argsort(self.key[told], kind="stable")]
        offset = np.empty(len(told), np.int64)
        for number in range(self.partitions):
            mine = self.partition[told] == number
            offset[mine] = np.searchsorted(self._keys[number], self.key[told][mine])
        offset[np.isin(told, self.chosen["unplaced"])] = -1
        return {
            "session": self.session[told],
            "seq": self.seq[told],
            "partition": self.partition[told],
            "offset": offset,
        }


def _transactions(plan, own, next_seq):
    """Aborted and sent again; then plain ones; then one that stays open in partition 0, with plain ones behind it."""
    acked = []

    def tell(session, seq, partition, offset):
        acked.append(
            {
                "session": np.full(len(seq), session),
                "seq": np.asarray(seq),
                "partition": np.full(len(seq), partition),
                "offset": np.asarray(offset),
            }
        )

    for number, log in enumerate(plan.logs):
        seqs = np.arange(7) * plan.partitions + number
        begin = log.end
        log.add(np.full(7, own), seqs, visible=False)
        plan.phases.append((1, "aborted", number, begin, log.end))
        log.end += 1  # its marker
        begin = log.end
        tell(own, seqs, number, log.add(np.full(7, own), seqs))
        plan.phases.append((2, "committed", number, begin, log.end))
        log.end += 1
        begin = log.end
        more = next_seq[0] + np.arange(5) * plan.partitions + number
        tell(0, more, number, log.add(np.full(5, 0), more))
        plan.phases.append((3, "plain", number, begin, log.end))
    log, begin = plan.logs[0], plan.logs[0].end
    plan.stable[0] = begin
    log.add(np.full(3, own), 1_000 + np.arange(3), visible=False)
    plan.phases.append((4, "open", 0, begin, log.end))
    begin, behind = log.end, next_seq[2] + np.arange(6)
    tell(2, behind, 0, log.add(np.full(6, 2), behind))
    plan.planted["pending"] = code(2, behind)
    plan.phases.append((5, "plain", 0, begin, log.end))
    return acked


def _tells(acked):
    """The number of the batch in which each is told: so many of its session at once."""
    tell = np.empty(len(acked["seq"]), np.int64)
    for session in np.unique(acked["session"]):
        mine = acked["session"] == session
        tell[mine] = np.arange(mine.sum()) // TELLS
    return tell


def ledger_values(plan, topic, cluster):
    """The telemetry records that tell it: (key, value), in the order of their batches."""
    told, dead_letters = plan.told(), defaultdict(list)
    for session, seq in plan.dead_letters:
        dead_letters[session].append(
            [str(plan.sessions[session]), seq, topic, "_MSG_TIMED_OUT", "possibly_persisted", 1.7e9]
        )
    order = np.lexsort((told["tell"], told["session"]))
    starts = np.flatnonzero(
        np.diff(np.stack([told["session"][order], told["tell"][order]]), prepend=-1).any(axis=0)
    )
    for begin, end in zip(starts, [*starts[1:], len(order)], strict=True):
        which = order[begin:end]
        session, tell = int(told["session"][which[0]]), int(told["tell"][which[0]])
        name, rows = plan.sessions[session], []
        for partition in range(plan.partitions):
            mine = which[told["partition"][which] == partition]
            placed = mine[told["offset"][mine] >= 0]
            place = (name.bytes, topic, partition)
            if len(placed):
                rows += rows_of(place, told["seq"][placed].tolist(), told["offset"][placed].tolist())
            unknown = mine[told["offset"][mine] < 0]
            rows += unplaced_rows(place, told["seq"][unknown].tolist())
        batch = {
            "v": 1, "producer_id": f"p-{session}", "sequence": tell, "cluster_id": cluster, "statistics": [],
            "latencies": [], "errors": [], "producer": None, "ledger": rows,
            "given_up": dead_letters.pop(session, []) if tell == 0 else [],
        }  # fmt: skip
        yield f"p-{session}".encode(), orjson.dumps(batch, default=list)


# what an audit must find, by another way


def truth(plan, *, start=None, hidden=False):
    """The codes of each kind by their definitions, over everything that a reader sees from `start` on."""
    start = start or {}
    seen, told = plan.columns(hidden=hidden), plan.told()
    begin = np.array(
        [max(start.get(number, 0), plan.low.get(number, 0)) for number in range(plan.partitions)]
    )
    low = np.array([plan.low.get(number, 0) for number in range(plan.partitions)])
    end = np.array(
        [log.end if hidden else plan.stable.get(number, log.end) for number, log in enumerate(plan.logs)]
    )
    inside = (seen["offset"] >= begin[seen["partition"]]) & (seen["session"] != FOREIGN)
    ours = {name: values[inside] for name, values in seen.items()}
    ours_code, told_code = code(ours["session"], ours["seq"]), code(told["session"], told["seq"])
    placed, at = told["offset"] >= 0, told["partition"]
    ranged = placed & (told["offset"] >= begin[at]) & (told["offset"] < end[at])
    before = placed & (told["offset"] < begin[at])
    lost = set(told_code[ranged].tolist()) - set(ours_code.tolist()) - set(told_code[before].tolist())
    alone = set(ours_code.tolist()) - set(told_code.tolist())
    dead = set(code(*np.array(plan.dead_letters).T).tolist()) if plan.dead_letters else set()
    copies, late = _copies_and_late(ours, ours_code, told, told_code, before)
    expired = (
        placed
        & (told["offset"] < low[at])
        & (told["offset"] >= np.array([start.get(n, 0) for n in range(plan.partitions)])[at])
    )
    return {
        "lost": lost,
        "duplicated": copies,
        "reordered": late,
        "unledgered": alone - dead,
        "given_up_found": alone & dead,
        "pending": set(told_code[placed & (told["offset"] >= end[at])].tolist()),
        "expired": int(expired.sum()),
        "acknowledged": int(ranged.sum()),
        "records": int(((seen["offset"] >= begin[seen["partition"]])).sum()),
        "foreign": int(((seen["offset"] >= begin[seen["partition"]]) & (seen["session"] == FOREIGN)).sum()),
    }  # fmt: skip


def _copies_and_late(ours, ours_code, told, told_code, before):
    """By hand, over ids that occur more than once and over each session of each partition in turn."""
    values, counts = np.unique(ours_code, return_counts=True)
    again = np.intersect1d(values, told_code[before])
    more, earlier = np.union1d(values[counts > 1], again), set(again.tolist())
    home = defaultdict(set)
    for which in np.flatnonzero(np.isin(told_code, more)).tolist():
        home[int(told_code[which])].add(int(told["partition"][which]))
    places = defaultdict(list)
    for place in np.flatnonzero(np.isin(ours_code, more)).tolist():
        places[int(ours_code[place])].append(place)
    copy = np.zeros(len(ours_code), bool)
    for one, found in places.items():
        if one in earlier:
            copy[found] = True
            continue
        found.sort(
            key=lambda place: (
                ours["partition"][place] not in home[one],
                ours["partition"][place],
                ours["offset"][place],
            )
        )
        copy[found[1:]] = True
    late = []
    first = {name: values[~copy] for name, values in ours.items()}
    below = {name: values[before] for name, values in told.items()}
    for partition in np.unique(first["partition"]):
        for session in np.unique(first["session"]):
            mine, known = (
                (one["partition"] == partition) & (one["session"] == session) for one in (first, below)
            )
            seq = first["seq"][mine][np.argsort(first["offset"][mine])]
            tops = [below["seq"][known].max(initial=-1)]
            top = np.maximum.accumulate(np.concatenate([tops, seq]))[:-1]
            late += code(session, seq[seq < top]).tolist()
    return set(ours_code[copy].tolist()), set(late)


# on a real Kafka


def write(plan, servers, topic, ledger_topic, cluster, *, size=200):
    """Put it there; the transactional producer comes back, and its transaction is open as long as that lives."""
    body = bytes(range(256)) * (size // 256 + 1)
    chance = np.random.default_rng(plan.seed + 1)
    plain = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 20, "compression.type": "none",
                      "queue.buffering.max.messages": 200_000})  # fmt: skip
    holding = None
    names = [session.bytes for session in plan.sessions]
    for turn in sorted({phase[0] for phase in plan.phases}):
        parts = [phase for phase in plan.phases if phase[0] == turn]
        kind, client = parts[0][1], plain
        if kind != "plain":
            holding = client = holding or _transacting(servers, topic)
            client.begin_transaction()
        for _, _, partition, begin, end in parts:
            for session, seq in _stretch(plan.logs[partition], begin, end):
                headers = _headers(names, session, seq, chance)
                _produce(client, topic, partition, body[:size], headers)
        assert client.flush(120) == 0
        if kind == "aborted":
            client.abort_transaction(30)
        elif kind == "committed":
            client.commit_transaction(30)
    publish(servers, ledger_topic, ledger_values(plan, topic, cluster))
    if plan.low:
        asked = [TopicPartition(topic, number, offset) for number, offset in plan.low.items()]
        client = AdminClient({"bootstrap.servers": servers})  # what it was asked ends with it
        for future in client.delete_records(asked).values():
            future.result(30)
    return holding


def _stretch(log, begin, end, step=100_000):
    """(session, seq) of these offsets, a slice at a time."""
    session, seq, offset = (np.concatenate(column) for column in (log.session, log.seq, log.offset))
    first = int(np.searchsorted(offset, begin))
    for at in range(first, first + end - begin, step):
        last = min(at + step, first + end - begin)
        yield from zip(session[at:last].tolist(), seq[at:last].tolist(), strict=True)


def _transacting(servers, topic):
    settings = {"transactional.id": f"planted-{topic}", "transaction.timeout.ms": 600_000}
    producer = Producer({"bootstrap.servers": servers, **settings})
    producer.init_transactions(30)
    return producer


def _headers(names, session, seq, chance):
    """Ours first, as our producer writes it; of some records second, or behind one of the wrong length."""
    if session == FOREIGN:
        return [None, [("trace", b"x")], [("pc-id", b"short")], [("trace", b"x"), ("pc-id", None)]][
            chance.integers(4)
        ]
    ours = ("pc-id", names[session] + struct.pack(">Q", seq))
    if seq % 97 == 5:
        return [("trace", b"x"), ours]
    return [("pc-id", b"too short"), ours] if seq % 101 == 7 else [ours]


def _produce(client, topic, partition, value, headers):
    while True:
        try:
            client.produce(topic, value, partition=partition, headers=headers)
            return
        except BufferError:
            client.poll(0.05)


def publish(servers, topic, records):
    client = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 20})
    for key, value in records:
        while True:
            try:
                client.produce(topic, value, key)
                break
            except BufferError:
                client.poll(0.05)
    assert client.flush(60) == 0
