"""The errors of a client with the native core, with a scripted core and a scripted client of confluent_kafka."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from producer_core.delivery.exactly_once.native_client import NativeClient, ReportFailed
from producer_core.delivery.exactly_once.transactional_client import TransactionFailed
from tests.fixtures.native_core import messages

FENCED = KafkaError(KafkaError._FENCED, "fenced", fatal=True)
SENT = messages(3)


class Core:
    """A core that answers `produce` from a list, and has the given reports missing and failed."""

    def __init__(self, produced=((3, 0),), missing=(0, 0)):
        self._produced, self._missing = list(produced), list(missing)
        self.calls = []

    def begin(self):
        self.calls.append("begin")

    def produce(self, deliveries, start):
        self.calls.append(start)
        answer = self._produced.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def missing(self):
        return tuple(self._missing)

    def columns(self, count):
        return [5] * count, [7] * count


class Client:
    """A client whose `poll` and `commit_transaction` raise these errors in turn."""

    def __init__(self, polls=(), commit=None):
        self._polls, self._commit = list(polls), commit
        self.calls = []

    def begin_transaction(self):
        self.calls.append("begin")

    def poll(self, timeout):
        if self._polls:
            raise KafkaException(self._polls.pop(0))

    def commit_transaction(self, timeout):
        self.calls.append("commit")
        if self._commit is not None:
            raise KafkaException(self._commit)


@pytest.fixture
def native():
    def make(core, client):
        made = NativeClient.__new__(NativeClient)
        NativeClient.__init__(
            made, {"bootstrap.servers": "", "oauth_cb": print}, "id", statistics=print, connection_error=print,
            stopping=lambda: False,
        )  # fmt: skip
        made._core, made._producer = core, client
        return made

    return make


def test_a_transaction_is_committed_after_all_reports_and_returns_its_columns(native):
    core, client = Core(), Client()
    made = native(core, client)
    made.begin()
    assert made.pass_on(SENT, float("inf")) == 3
    assert made.finish(3, float("inf")) == ([5, 5, 5], [7, 7, 7])
    assert (core.calls, client.calls) == (["begin", 0], ["begin", "commit"])


def test_a_full_queue_is_waited_for(native):
    core = Core([(1, KafkaError._QUEUE_FULL), (0, KafkaError._QUEUE_FULL), (2, 0)])
    assert native(core, Client()).pass_on(SENT, float("inf")) == 3
    assert core.calls == [0, 1, 1]


def test_a_queue_that_stays_full_until_the_deadline_fails_the_transaction(native):
    core = Core([(0, KafkaError._QUEUE_FULL)])
    with pytest.raises(TransactionFailed, match="took too long"):
        native(core, Client()).pass_on(SENT, 0.0)


@pytest.mark.parametrize(
    "answer", [(1, KafkaError.MSG_SIZE_TOO_LARGE), ValueError("odd"), TypeError(), IndexError()]
)
def test_a_refused_message_ends_the_call_before_it(native, answer):
    passed = native(Core([answer]), Client()).pass_on(SENT, float("inf"))
    assert passed == (1 if isinstance(answer, tuple) else 0)


def test_a_failed_report_is_not_committed(native):
    client = Client()
    with pytest.raises(ReportFailed) as failed:
        native(Core(missing=(0, KafkaError._MSG_TIMED_OUT)), client).finish(3, float("inf"))
    assert (failed.value.error.name(), client.calls) == ("_MSG_TIMED_OUT", [])
    assert not failed.value.may_have_committed


def test_a_fence_that_the_client_reports_later_is_the_cause_of_a_failed_report(native):
    """The shard then counts the loss of its id, and does not take it back forever."""
    core, client = Core(missing=(1, KafkaError._PURGE_QUEUE)), Client(polls=[FENCED])
    with pytest.raises(ReportFailed) as failed:
        native(core, client).finish(3, float("inf"))
    assert failed.value.error.name() == "_FENCED"


def test_a_commit_without_a_response_may_have_happened(native):
    client = Client(commit=KafkaError(KafkaError._TIMED_OUT))
    with pytest.raises(TransactionFailed) as failed:
        native(Core(), client).finish(3, float("inf"))
    assert failed.value.may_have_committed
    assert failed.value.reports == ()
