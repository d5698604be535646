"""Groups on a clock that is moved by hand, over a journal in memory; and what clients say to them, in few words."""

import heapq
from itertools import count

from headrace.coordinator.classic.effects import Answer, Store
from headrace.coordinator.classic.members import JoinProtocol, JoinRequest, SyncRequest
from headrace.coordinator.deadlines import Now
from headrace.coordinator.group_settings import GroupSettings
from headrace.coordinator.groups import Groups
from headrace.coordinator.journal import MemoryJournal
from headrace.coordinator.journal_loading import WAITING
from headrace.coordinator.topic_view import TopicTable
from headrace.core.clock import ManualClock

ORDERS = b"\x00\x01\x00\x00\x00\x01\x00\x06orders\x00\x00\x00\x00"  # a consumer that subscribes to `orders`
_ids = count(1)


def join_request(member_id="", *, group_id="g", protocols=("range",), metadata=ORDERS, **fields):
    fields.setdefault("session_timeout_ms", 10_000)
    fields.setdefault("fresh_id", f"{next(_ids)}")
    fields.setdefault("rebalance_timeout_ms", 60_000)
    return JoinRequest(
        group_id=group_id,
        member_id=member_id,
        client_id=fields.pop("client_id", "client"),
        client_host="/127.0.0.1",
        protocols=tuple(JoinProtocol(name, metadata) for name in protocols),
        **fields,
    )


def finish(steps):
    """All steps, here and now; what they come to."""
    while True:
        try:
            assert next(steps) != WAITING, "it waits for something that only the test can do"
        except StopIteration as end:
            return end.value


class Box:
    """A ticket that keeps what it is answered with."""

    def __init__(self):
        self.bodies = []

    def __call__(self, body):
        self.bodies.append(body)

    @property
    def is_answered(self):
        return bool(self.bodies)

    @property
    def body(self):
        assert len(self.bodies) == 1, f"answered {len(self.bodies)} times"
        return self.bodies[0]

    @property
    def code(self):
        return self.body["error_code"]


class Machine:
    """One group without a loop: stores are held until `stored` is called."""

    def __init__(self, group):
        self.group = group
        self.interleaved = False  # the test says when a large group goes on
        self.stores = []
        self.ms = 0

    @property
    def now(self):
        return Now(1_700_000_000_000 + self.ms, self.ms)

    def do(self, effects):
        self.handle(effects)
        while self.group.is_busy and not self.interleaved:
            self.go_on()

    def handle(self, effects):
        for effect in effects:
            if isinstance(effect, Answer):
                effect.ticket(effect.body)
            else:
                assert isinstance(effect, Store)
                self.stores.append(effect)

    def go_on(self):
        """A step of what is under way, and of no more than that."""
        self.handle(self.group.go_on(self.now))

    def join(self, member_id="", **fields):
        box = Box()
        self.do(self.group.join(join_request(member_id, **fields), box, self.now))
        return box

    def join_as_new(self, **fields):
        """Both steps of a new dynamic member; its id, and what it waits for."""
        member_id = self.join(**fields).body["member_id"]
        return member_id, self.join(member_id, **fields)

    def sync(self, member_id, generation, assignment=None, *, instance_id=None, protocol=("consumer", None)):
        box = Box()
        request = SyncRequest("g", member_id, generation, instance_id, *protocol, assignment or {})
        self.do(self.group.sync(request, box, self.now))
        return box

    def heartbeat(self, member_id, generation=None, instance_id=None):
        generation = self.group.facts.generation if generation is None else generation
        return self.group.heartbeat(member_id, generation, instance_id, self.now)

    def leave(self, *leaving):
        box = Box()
        self.do(
            self.group.leave([each if isinstance(each, tuple) else (each, None) for each in leaving], box, self.now)
        )
        return box

    def stored(self, code=0):
        stores, self.stores = self.stores, []
        for store in stores:
            self.do(self.group.stored(store.then, code, self.now))
            for ticket, body in store.answers:
                ticket(body)

    def pass_ms(self, ms):
        """Time passes; everything that falls due on the way happens at its time."""
        end = self.ms + ms
        while self.group.deadlines.wake_ms <= end and not self.group.expiry_waits:
            self.ms = max(self.ms, self.group.deadlines.wake_ms)
            self.do(self.group.expire(self.now))
        self.ms = end


class Scheduler:
    def __init__(self, clock):
        self._clock = clock
        self._timers = []
        self._order = count()

    def call_later(self, seconds, callback):
        timer = _Timer(callback)
        heapq.heappush(self._timers, (self._clock.monotonic() + seconds, next(self._order), timer))
        return timer

    def pass_ms(self, ms):
        end = self._clock.now_ms() + ms
        while self._timers and self._timers[0][0] * 1000 <= end + 1e-6:
            at, _, timer = heapq.heappop(self._timers)
            self._clock.advance(max(0, round(at * 1000) - self._clock.now_ms()))
            if timer.callback is not None:
                timer.callback()
        self._clock.advance(max(0, end - self._clock.now_ms()))


class _Timer:
    def __init__(self, callback):
        self.callback = callback

    def cancel(self):
        self.callback = None


class World:
    """Groups, and what a restart leaves of them."""

    def __init__(self, journal=None, clock=None, topics=None, scheduler=None, **settings):
        self.journal = journal or MemoryJournal()
        self.clock = clock or ManualClock()
        self.scheduler = scheduler or Scheduler(self.clock)
        self.topics = topics or TopicTable({"orders": 4})
        self.settings = settings
        settings.setdefault("initial_rebalance_delay_ms", 0)
        made = GroupSettings(**settings)
        self.groups = Groups(self.journal, self.clock, self.scheduler.call_later, made, self.topics)
        self.load()

    def load(self, epoch=0):
        self.groups.start()
        for partition in range(self.journal.partition_count):
            finish(self.groups.load(partition, epoch))

    def shard(self, group_id="g"):
        return self.groups.shard(group_id)

    def table(self, group_id="g"):
        return self.shard(group_id).table

    def restarted(self, **settings):
        self.journal.crash()
        return World(self.journal, self.clock, self.topics, **{**self.settings, **settings})

    def pass_ms(self, ms):
        self.scheduler.pass_ms(ms)

    def join(self, member_id="", **fields):
        box = Box()
        self.groups.join(join_request(member_id, **fields), box)
        self.pass_ms(0)
        return box

    def sync(self, member_id, generation, assignment=None, *, group_id="g", instance_id=None):
        box = Box()
        asked = (group_id, member_id, generation, instance_id, "consumer", "range", assignment or {})
        self.groups.sync(SyncRequest(*asked), box)
        return box

    def leave(self, *leaving, group_id="g"):
        box = Box()
        self.groups.leave(group_id, [each if isinstance(each, tuple) else (each, None) for each in leaving], box)
        return box

    def heartbeat(self, member_id, generation, group_id="g"):
        return self.groups.heartbeat(group_id, member_id, generation, None)

    def delete(self, *group_ids):
        box = Box()
        finish(self.groups.delete(group_ids, box))
        return box

    def state(self, group_id="g"):
        return self.groups.describe([group_id])[0]["group_state"]

    def stable_group(self, group_id="g", **fields):
        """A group of one, through all steps; the member's id."""
        member_id = self.join(group_id=group_id, **fields).body["member_id"]
        generation = self.join(member_id, group_id=group_id, **fields).body["generation_id"]
        assert self.sync(member_id, generation, {member_id: b"all"}, group_id=group_id).code == 0
        return member_id

    def records(self):
        return [
            record for partition in range(self.journal.partition_count) for record in self.journal.read_all(partition)
        ]
