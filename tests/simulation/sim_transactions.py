"""Transactional producers of both transaction versions, which commit, abort or vanish, and a consumer that is one.

Version 1 names its partitions beforehand and keeps its epoch; version 2 is told a new epoch at each end. Two clients
may share a transactional id: each then fences the other, and only the last one may commit.
"""

from __future__ import annotations

from sim_client import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    Client,
    Life,
    Partition,
)
from sim_groups import fetch_offsets
from sim_history import Commit, Txn, ViolationError, check
from sim_producers import AGAIN, Batch, produce_body
from sim_readers import Reader

from headrace.protocol.error_codes import (
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    INVALID_PRODUCER_EPOCH,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_TXN_STATE,
    NONE,
    NOT_COORDINATOR,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    PRODUCER_FENCED,
    TRANSACTION_ABORTABLE,
)

COORDINATOR = (COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR)
PASSING = (CONCURRENT_TRANSACTIONS, *COORDINATOR, *AGAIN)
FENCED = (PRODUCER_FENCED, INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING)
ABORTABLE = (INVALID_TXN_STATE, TRANSACTION_ABORTABLE, OUT_OF_ORDER_SEQUENCE_NUMBER)
ATTEMPTS_MAX = 25


class Fenced(Exception):  # noqa: N818
    """Somebody else has the transactional id now, or the broker has aborted what took too long."""


class Unusable(Exception):  # noqa: N818
    """This transaction cannot be committed any more."""


class TransactionalClient(Client):
    """What every transactional producer does."""

    def __init__(self, world, name: str, transactional_id: str, version: int) -> None:
        Client.__init__(self, world, name)
        self.transactional_id = transactional_id
        self.version = version
        # With version 1 a late request may end or extend the next transaction, in Kafka too; version 2 was made for it.
        self.stragglers = version == 2
        self.producer = (-1, -1)
        self._sequences: dict[Partition, int] = {}
        self._added: set[Partition] = set()
        self._count = 0
        self._session = ""

    def init(self) -> Life:
        while True:
            body = {"transactional_id": self.transactional_id, "transaction_timeout": self.rng.choice((3000, 30_000))}
            answer = yield from self.call(INIT_PRODUCER_ID, self.rng.choice((2, 4, 5)), body)
            if answer is not None and answer.error_code == NONE:
                producer = (answer.producer_id, answer.producer_epoch)
                inits = self.world.inits.setdefault(self.transactional_id, [])
                inits.append((producer, self.name, self.world.offsets.tick()))
                self._use(producer)
                return
            if answer is not None:
                check(answer.error_code in PASSING, f"{self.name}: InitProducerId: error {answer.error_code}")
            yield from self.pause(self.rng.randint(20, 300))

    def _use(self, producer: tuple[int, int]) -> None:
        if producer != self.producer:
            self._count += 1
            self._session = f"{self.name}.{self._count}"
            self._sequences.clear()
        self.producer = producer

    def begin_transaction(self) -> Txn:
        self._added.clear()
        self.world.transaction_count += 1
        return Txn(f"transaction {self.world.transaction_count} of {self.name} as {self.producer}")

    def send(self, txn: Txn, partition: Partition, count: int, text: str = "") -> Life:
        """Returns when it is acknowledged."""
        first = self._sequences.get(partition, 0)
        self._sequences[partition] = first + count
        values = [f"{self._session}/{partition[0]}{partition[1]}/{at}{text}" for at in range(first, first + count)]
        for number, value in enumerate(values, first):
            self.world.records.will_send(value, self._session, number, txn)
            txn.values.append((partition, value))
        if self.version == 1 and partition not in self._added:
            topic, index = partition
            body = {
                "v3_and_below_transactional_id": self.transactional_id,
                "v3_and_below_producer_id": self.producer[0],
                "v3_and_below_producer_epoch": self.producer[1],
                "v3_and_below_topics": [{"name": topic, "partitions": [index]}],
            }

            def added(answer) -> int:
                return answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code

            yield from self._insist(ADD_PARTITIONS_TO_TXN, 3, body, added)
            self._added.add(partition)
        version = self.rng.choice((9, 11)) if self.version == 1 else self.rng.choice((12, 13))
        batch = Batch(partition, values, first)
        data = batch.encoded(self.producer, self.now_ms, transactional=True)
        body = produce_body(self.world, version, batch, data, self.transactional_id)
        answer = yield from self._insist(
            PRODUCE, version, body, lambda answer: answer.responses[0].partition_responses[0].error_code
        )
        self.world.records.acknowledged(partition, answer.responses[0].partition_responses[0].base_offset, values)

    def commit_offsets(self, group: str, offsets: dict[Partition, tuple[int, str]]) -> Life:
        body = {
            "transactional_id": self.transactional_id,
            "group_id": group,
            "producer_id": self.producer[0],
            "producer_epoch": self.producer[1],
        }
        if self.version == 1:
            yield from self._insist(ADD_OFFSETS_TO_TXN, 3, body, lambda answer: answer.error_code)
        topics: dict[str, list[dict[str, object]]] = {}
        for (topic, index), (offset, note) in offsets.items():
            entry = {"partition_index": index, "committed_offset": offset, "committed_metadata": note}
            topics.setdefault(topic, []).append(entry)
        body["topics"] = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
        yield from self._insist(
            TXN_OFFSET_COMMIT,
            3 if self.version == 1 else 5,
            body,
            lambda answer: max(each.error_code for topic in answer.topics for each in topic.partitions),
        )

    def end(self, txn: Txn, *, commit: bool) -> Life:
        """Until it knows what became of it, or is fenced."""
        began = self.world.offsets.tick()
        txn.commit_requested = txn.commit_requested or commit
        certain = True
        body = {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer[0],
            "producer_epoch": self.producer[1],
            "committed": commit,
        }
        for _ in range(40 * ATTEMPTS_MAX):
            answer = yield from self.call(END_TXN, 3 if self.version == 1 else 5, body)
            if answer is None or answer.error_code in PASSING:
                certain = certain and answer is not None and answer.error_code == CONCURRENT_TRANSACTIONS
                yield from self.pause(self.rng.randint(10, 200))
                continue
            if answer.error_code == NONE:
                for producer, other, at in self.world.inits[self.transactional_id]:
                    late = commit and producer > self.producer and at < began
                    check(not late, f"{txn.name} was committed after {other} had taken over its transactional id")
                txn.committed = commit
                if self.version == 2:
                    self._use((answer.producer_id, answer.producer_epoch))
                return
            check(answer.error_code in (*FENCED, *ABORTABLE), f"{txn.name}: EndTxn: error {answer.error_code}")
            if certain and commit:
                txn.committed = False
            raise Fenced
        raise ViolationError(f"{txn.name} could not be ended")

    def _insist(self, api_key: int, version: int, body, code_of) -> Life:
        for _ in range(ATTEMPTS_MAX):
            answer = yield from self.call(api_key, version, body)
            code = NONE if answer is None else code_of(answer)
            if answer is not None and code == NONE:
                return answer
            if code in FENCED:
                raise Fenced
            if code in ABORTABLE:
                raise Unusable
            check(answer is None or code in PASSING, f"{self.name}: api {api_key}: error {code}")
            yield from self.pause(self.rng.randint(10, 200))
        raise Unusable


class TransactionalProducer(TransactionalClient):
    def life(self) -> Life:
        while not self.ending:
            yield from self.init()
            try:
                while not self.ending:
                    yield from self._transaction()
                    if self.rng.random() < 0.3:
                        yield from self.pause(self.rng.randint(10, 2_000))
            except Fenced:
                yield from self.pause(self.rng.randint(100, 3_000))

    def _transaction(self) -> Life:
        txn = self.begin_transaction()
        usable = True
        try:
            for _ in range(self.rng.randint(1, 4)):
                yield from self.send(txn, self.rng.choice(self.world.partitions), self.rng.randint(1, 3))
        except Unusable:
            usable = False
        fate = self.rng.random()
        if fate < 0.1:
            yield from self.pause(self.rng.choice((0, 5_000)))  # forgotten: by the next init, or the broker's patience
            raise Fenced
        if fate < 0.2:
            yield from self.pause(self.rng.choice((2_000, 4_000)))  # slow; it may be too late then
        yield from self.end(txn, commit=usable and self.rng.random() < 0.65)
        if not usable:
            raise Fenced  # its sequence numbers are not to be trusted any more


class ExactlyOnce(TransactionalClient, Reader):
    """Reads one topic and writes to another, its offsets in the same transaction: each input comes out once."""

    GROUP = "exactly-once"

    def __init__(self, world, name: str, transactional_id: str, version: int) -> None:
        Reader.__init__(self, world, name, [("a", 0), ("a", 1)], committed_only=True)
        TransactionalClient.__init__(self, world, name, transactional_id, version)  # last: it says who is a straggler
        self._inputs: list[tuple[Partition, int, str]] = []

    def life(self) -> Life:
        yield from self.find_coordinator(self.GROUP)
        while not self.ending:
            yield from self.init()
            found = yield from fetch_offsets(self, self.GROUP, list(self.positions), stable=True)
            if found is None:
                continue
            self.positions = {partition: max(offset, 0) for partition, (offset, _) in found.items()}
            try:
                while not self.ending:
                    yield from self._transaction()
                    yield from self.pause(self.rng.randint(10, 600))
            except Fenced:
                yield from self.pause(self.rng.randint(10, 1_500))

    def _read(self, partition: Partition, offset: int, value: str) -> None:
        super()._read(partition, offset, value)
        self._inputs.append((partition, offset, value))

    def _transaction(self) -> Life:
        self._inputs = []
        before = dict(self.positions)
        yield from self.fetch(12)
        if not self._inputs:
            return
        txn = self.begin_transaction()
        note = txn.name
        commits: dict[Partition, Commit] = {}
        try:
            for (_, index), _, value in self._inputs[:4]:
                yield from self.send(txn, ("out", index), 1, f">{value}")
            done = {partition: (offset + 1, note) for partition, offset, _ in self._inputs[:4]}
            commits = {
                each: self.world.offsets.began(self.GROUP, each, offset, note) for each, (offset, _) in done.items()
            }
            yield from self.commit_offsets(self.GROUP, done)
            if self.rng.random() < 0.1:
                raise Fenced  # it dies here
            yield from self.end(txn, commit=True)
            self.positions = before | {partition: offset for partition, (offset, _) in done.items()}
        except Unusable:
            raise Fenced from None  # begins again: the next init aborts what is open
        finally:
            for partition, commit in commits.items():
                if txn.committed:
                    self.world.offsets.acknowledged(commit)
                elif txn.commit_requested and txn.committed is None:
                    self.world.offsets.unknown(commit, may_still_come=True)
                else:
                    self.world.offsets.refused(self.GROUP, partition, commit)
