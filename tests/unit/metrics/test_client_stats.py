"""librdkafka's statistics as rows that can be merged: in the recorder, the store and telemetry."""

from __future__ import annotations

import orjson
import pytest

from producer_core import ReliableKafkaProducer
from producer_core.brokers import embedded
from producer_core.delivery.exactly_once.merged_statistics import merge_statistics
from producer_core.metrics.batch_size import sum_by_minute
from producer_core.metrics.client_stats import ClientStats
from producer_core.metrics.telemetry import decode, encode
from producer_core.store import Batch, BrokerRow, ClientRow, Store
from tests.support import eventually

WHERE = (1_800_000_000, "c", "p")


def window(count=0, total=0, highest=0, p99=0):
    return {"cnt": count, "sum": total, "max": highest, "p99": p99}


def broker(node=1, **changes):
    known = {
        "nodeid": node, "nodename": f"kafka{node}:9092", "source": "learned", "state": "UP", "connects": 1,
        "disconnects": 0, "tx": 10, "txretries": 0, "req_timeouts": 0, "outbuf_msg_cnt": 1, "waitresp_msg_cnt": 2,
        "int_latency": window(4, 20_000, 9000, 8000), "outbuf_latency": window(2, 200, 150, 140),
        "rtt": window(2, 60_000, 50_000, 49_000), "throttle": window(2, 300, 200, 190),
    }  # fmt: skip
    return known | changes


def statistics(*brokers, **changes):
    known = {
        "time": 1_800_000_000, "msg_cnt": 50, "msg_max": 1000, "msg_size": 900, "msg_size_max": 1000, "replyq": 3,
        "brokers": {str(number): one for number, one in enumerate(brokers)},
        "topics": {"orders": {"batchcnt": window(5, 20), "batchsize": window(5, 4000)}},
        "eos": {"epoch_cnt": 1},
    }  # fmt: skip
    return known | changes


def rows_of(*samples, late=0.0):
    client_stats = ClientStats()
    for one in samples:
        client_stats.add(one, 1_800_000_000 + late)
    (client,), brokers = client_stats.take(WHERE)
    return client, brokers


def test_one_second_of_statistics_gives_a_client_row_and_a_row_for_each_broker():
    client, (row,) = rows_of(statistics(broker()))
    assert (client.queued_sum, client.room_sum, client.samples) == (50, 1000, 1)
    assert (client.batches, client.batch_messages, client.batch_bytes) == (5, 20, 4000)
    assert (client.fill_highest, client.unpolled_highest, client.late_highest) == (0.9, 3, 0.0)
    assert (row.broker_id, row.address, row.up, row.down, row.requests) == (1, "kafka1:9092", 1, 0, 10)
    assert (row.queue_count, row.queue_sum) == (4, pytest.approx(0.02))
    assert (row.rtt_count, row.rtt_sum, row.rtt_p99) == (2, pytest.approx(0.06), pytest.approx(0.049))
    assert row.throttle_sum == pytest.approx(0.3)  # milliseconds, the others are microseconds
    assert row.in_flight_highest == 3


def test_counters_are_summed_as_increases_and_restart_with_a_new_client():
    _, (row,) = rows_of(
        statistics(broker(tx=10, txretries=2)),
        statistics(broker(tx=14, txretries=2)),
        statistics(broker(tx=3, txretries=1)),
    )
    assert (row.requests, row.retries) == (17, 3)


def test_the_counters_of_a_broker_that_returns_start_at_zero():
    _, (row,) = rows_of(statistics(broker(tx=10)), statistics(), statistics(broker(tx=14)))
    assert row.requests == 24


def test_a_killed_broker_is_down_while_librdkafka_lists_only_the_bootstrap_address():
    """Regression: the table showed the broker as connected for 100 % of the time during an outage."""
    outage = statistics(broker(-1, nodename="kafka1:9092", state="TRY_CONNECT", tx=0))
    _, (bootstrap, row) = rows_of(statistics(broker()), outage, outage, statistics(broker()))
    assert (row.samples, row.up, row.down, row.disconnects) == (4, 2, 2, 1)
    assert (bootstrap.broker_id, bootstrap.down) == (-1, 2)


def test_a_killed_broker_is_down_after_a_sample_that_needs_no_connection():
    """Regression: the first sample after a kill has no broker and no message, and the broker was forgotten in it."""
    idle = statistics(broker(-1, nodename="kafka1:9092", state="INIT", tx=0, connects=0), msg_cnt=0)
    outage = statistics(broker(-1, nodename="kafka1:9092", state="TRY_CONNECT", tx=0))
    _, rows = rows_of(statistics(broker()), idle, outage, outage)
    row = rows[-1]
    assert (row.broker_id, row.up, row.down, row.disconnects) == (1, 1, 2, 1)


def test_a_broker_that_left_the_cluster_is_not_down():
    _, rows = rows_of(statistics(broker(1), broker(2)), statistics(broker(1)), statistics(broker(1)))
    assert [(row.broker_id, row.samples, row.down, row.disconnects) for row in rows] == [
        (1, 3, 0, 0),
        (2, 1, 0, 0),
    ]


def test_two_seconds_are_summed_and_the_higher_maximum_is_kept():
    client, (row,) = rows_of(
        statistics(broker()),
        statistics(broker(rtt=window(8, 40_000, 6000, 5000)), msg_cnt=150, replyq=1),
    )
    assert (client.samples, client.queued_sum, client.unpolled_highest) == (2, 200, 3)
    assert (row.rtt_count, row.rtt_sum, row.rtt_p99) == (10, pytest.approx(0.1), pytest.approx(0.049))


def test_statistics_are_taken_once():
    client_stats = ClientStats()
    client_stats.add(statistics(broker()), 1_800_000_000)
    client_stats.take(WHERE)
    assert client_stats.take(WHERE) == ((), ())


def test_the_delay_of_late_statistics_is_recorded():
    assert rows_of(statistics(), late=8.5)[0].late_highest == pytest.approx(7.5)


def test_the_first_epoch_does_not_count_as_a_rise():
    client, _ = rows_of(statistics(eos={"epoch_cnt": 0}), statistics(), statistics(eos={"epoch_cnt": 3}))
    assert client.epoch_rises == 2


def test_an_unused_broker_of_the_metadata_has_no_row_and_an_unreachable_one_is_down():
    _, rows = rows_of(
        statistics(
            broker(1, state="INIT", connects=0),
            broker(2, state="TRY_CONNECT", connects=0),
            broker(3, state="INIT", connects=2),
            broker(4, source="logical"),
        )
    )
    assert [(row.broker_id, row.up, row.down) for row in rows] == [(2, 0, 1), (3, 0, 0)]


@pytest.mark.parametrize(
    ("states", "cut_off"),
    [
        (("UP", "DOWN"), 0),
        (("TRY_CONNECT", "INIT"), 1),
        (("INIT", "INIT"), 0),
        (("CONNECT", "DOWN"), 1),
        ((), 0),
    ],
)
def test_a_client_is_cut_off_while_it_needs_a_broker_and_has_no_connection(states, cut_off):
    client, _ = rows_of(
        statistics(*(broker(number, state=state) for number, state in enumerate(states)), msg_cnt=0)
    )
    assert client.cut_off == cut_off


def test_a_client_with_queued_messages_and_without_brokers_is_cut_off():
    assert rows_of(statistics(msg_cnt=7))[0].cut_off == 1
    assert rows_of(statistics(msg_cnt=0))[0].cut_off == 0


@pytest.mark.parametrize("other", [{}, {"brokers": {"memory": {"state": "UP"}}}])
def test_statistics_that_are_not_librdkafkas_give_no_rows(other):
    client_stats = ClientStats()
    client_stats.add(other, 1.0)
    assert client_stats.take(WHERE) == ((), ())


def test_several_clients_of_one_producer_are_merged_into_one_view():
    client, (row,) = rows_of(
        merge_statistics([statistics(broker()), statistics(broker(rtt=window(6, 20_000, 90_000, 9)))])
    )
    assert (client.queued_sum, client.room_sum, client.batch_messages) == (100, 2000, 40)
    assert (row.rtt_count, row.rtt_sum, row.rtt_highest, row.requests) == (8, pytest.approx(0.08), 0.09, 20)


# batches, telemetry and the store


def make_batch(sequence=0, at=WHERE[0], **changes):
    client, rows = rows_of(statistics(broker(**changes)))
    client, rows = client._replace(window_start=at), tuple(row._replace(window_start=at) for row in rows)
    return Batch("p", sequence, client_statistics=(client,), broker_statistics=rows)


def test_batches_beyond_the_limit_are_merged_with_sums_and_maxima():
    at = WHERE[0] // 60 * 60
    both = sum_by_minute(make_batch(0, at), make_batch(1, at + 1, rtt=window(1, 90_000, 90_000, 90_000)))
    (client,), (row,) = both.client_statistics, both.broker_statistics
    assert (client.window_start, client.samples, client.fill_highest) == (at, 2, 0.9)
    assert (row.rtt_count, row.rtt_p99) == (3, pytest.approx(0.09))


def test_telemetry_contains_client_rows_and_reads_older_and_newer_records():
    assert decode(encode(make_batch())) == make_batch()
    older = orjson.loads(encode(make_batch()))
    del older["client_statistics"], older["broker_statistics"]
    assert decode(orjson.dumps(older)) == Batch("p", 0)
    assert decode(orjson.dumps({**orjson.loads(encode(make_batch())), "weather": [[1]]})) == make_batch()


def test_a_row_with_unknown_columns_is_refused():
    newer = orjson.loads(encode(make_batch()))
    newer["broker_statistics"][0].append(7)
    with pytest.raises(ValueError, match="telemetry"):
        decode(orjson.dumps(newer))


@pytest.mark.slow
def test_the_store_rolls_up_client_rows_with_equal_sums_and_maxima_and_prunes_them(tmp_path):
    store, old = Store.open(tmp_path / "store.duckdb"), WHERE[0] // 3600 * 3600 - 10_800
    for sequence in range(4):
        store.append(
            make_batch(sequence, old + 30 * sequence, rtt=window(1, 1000 * sequence, 0, 1000 * sequence))
        )
    before = store.rows("broker_series", bucket=60), store.rows("client_series", bucket=60)

    assert store.rollup(float(old + 10_800)) > 0

    assert (store.rows("broker_series", bucket=60), store.rows("client_series", bucket=60)) == before
    with store.borrow() as connection:
        for table in ("client_statistics", "broker_statistics"):
            assert connection.execute(f"SELECT resolution, count(*) FROM {table} GROUP BY 1").fetchall() == [
                (60, 2)
            ]
    store.prune(float(old + 100 * 86_400))
    assert store.rows("broker_series", bucket=60) == store.rows("client_series", bucket=60) == []


@pytest.mark.slow
def test_a_real_client_writes_rows_of_its_broker_to_the_store(tmp_path):
    path = tmp_path / "store.duckdb"
    with embedded.start(topics={"orders": 2}) as running:
        with ReliableKafkaProducer(running.bootstrap_servers, store=path) as producer:

            def written():
                producer.send_message("orders", {"n": 1})
                found = Store.open(path).rows("broker_series", bucket=3600)
                return found and found[-1]["rtt_count"] and found[-1]["queue_count"]

            eventually(written, 30)
    (client,), (row, *_) = (
        Store.open(path).rows("client_series", bucket=86_400),
        Store.open(path).rows("broker_series", bucket=86_400),
    )
    assert (client["batch_messages"] > 0, client["room_sum"] > 0, row["up"] > 0) == (True, True, True)
    assert 0 < row["rtt_sum"] / row["rtt_count"] < 30


def test_the_rows_have_the_columns_of_their_tables(tmp_path):
    store = Store.open(tmp_path / "store.duckdb")
    with store.borrow() as connection:
        for table, kind in (("client_statistics", ClientRow), ("broker_statistics", BrokerRow)):
            names = [row[0] for row in connection.execute(f"DESCRIBE {table}").fetchall()]
            assert names == ["resolution", *kind._fields]
