"""Seeded sequences of what several sessions do to a server. Everything below one path of the sequence's own, and what
is odd; with one seed always the same."""

from __future__ import annotations

import random
from typing import Any

from raw_client import acl_bytes, create_body

from headrace.protocol.zookeeper import codes
from headrace.protocol.zookeeper.jute import (
    boolean_bytes,
    buffer_bytes,
    int_bytes,
    long_bytes,
    string_bytes,
    vector_bytes,
)

SESSIONS = 3
SUPER = b"super:top"  # whose digest the servers know
_NAMES = ("a", "b", "c", "d")
_LIMITED = "q"  # where quotas are: without multi, whose steps ZooKeeper counts only when all are done
_BAD_PATHS = ("", "a", "/a/", "//a", "/a/./b", "/a/../b", "/\u0001", "/a\0b", "/zookeeper", "/", "/zookeeper/quota",
              "/zookeeper/config", "/\ue000", "/\U0001f600", "/.", "/a//b")  # fmt: skip
_CREDENTIALS = (b"ann:pw", b"bob:secret", b"ann:pw:more", b"no-colon", SUPER)
_LIMITS = (
    b"count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=4",
    b"count=-1,bytes=-1=;byteHardLimit=30;countHardLimit=-1",
    b"count=2,bytes=10=;byteHardLimit=-1;countHardLimit=-1",
    b"count=2,bytes=10",
    b"count=3,bytes=50=;byteHardLimit=60;countHardLimit=5",
)
_ACLS = (
    ((31, "world", "anyone"),),
    ((31, "world", "anyone"),),
    ((31, "world", "anyone"),),
    ((1, "world", "anyone"), (31, "auth", "")),
    ((31, "auth", ""),),
    ((31, "digest", "ann:x1"),),
    ((31, "digest", "ann"),),
    ((31, "ip", "127.0.0.1"),),
    ((31, "ip", "127.0.0.0/8"), (4, "world", "anyone")),
    ((31, "ip", "10.0.0.0/8"), (1, "world", "anyone"), (1, "world", "anyone")),
    ((31, "ip", "nowhere"),),
    ((31, "nobody", "x"),),
    ((31, "world", "somebody"),),
    (),
)
_NEXT_MULTI = boolean_bytes(False) + int_bytes(-1)
_END_OF_MULTI = int_bytes(-1) + boolean_bytes(True) + int_bytes(-1)

Step = tuple[Any, ...]


class Sequence:
    """`steps` are tuples: which client, what it does, and with what."""

    def __init__(self, seed: int, count: int, *, restarts: bool) -> None:
        self._choose = random.Random(seed)
        self._root = f"/of-{seed}"
        self._restarts = restarts
        start: Step = (0, "ask", codes.CREATE, create_body(self._root, b""))
        limited: Step = (0, "ask", codes.CREATE, create_body(f"{self._root}/{_LIMITED}", b""))
        self.steps = [start, limited, *(self._step() for _ in range(count))]

    # ── paths and values ─────────────────────────────────────────────────────────────────────────────────────────

    def _good_path(self) -> str:
        choose = self._choose
        return "/".join([self._root, *(choose.choice(_NAMES) for _ in range(choose.randint(1, 3)))])

    def _path(self, *, limited: bool = True) -> str:
        chance = self._choose.random()
        if chance < 0.04:
            return self._choose.choice(_BAD_PATHS)
        if chance < 0.06:
            return self._root
        if limited and chance < 0.16:
            return "/".join([self._root, _LIMITED, *self._choose.choices(_NAMES, k=self._choose.randint(1, 2))])
        if limited and chance < 0.18:
            return f"/zookeeper/quota{self._root}/{_LIMITED}/{self._choose.choice(_QUOTA_NODES)}"
        return self._good_path()

    def _changed_path(self, *, limited: bool) -> str:
        """Quotas themselves change in steps of their own."""
        while True:
            path = self._path(limited=limited)
            if not path.startswith("/zookeeper/quota/"):
                return path

    def _version(self) -> int:
        return self._choose.choice((-1, -1, -1, 0, 1, 2, 5))

    def _data(self) -> bytes | None:
        return self._choose.choice((None, b"", b"x", b"data" * 5))

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _create(self, kind: int, *, limited: bool) -> bytes:
        choose = self._choose
        path = self._changed_path(limited=limited)
        if kind == codes.CREATE_TTL:
            ttl = choose.choice((0, -1, 10_000_000, 1 << 41))
            return create_body(path, self._data(), choose.choice((5, 6)), choose.choice(_ACLS)) + long_bytes(ttl)
        flags = 4 if kind == codes.CREATE_CONTAINER else choose.choice((0, 0, 0, 1, 1, 2, 3, 4, 9))
        return create_body(path, self._data(), flags, choose.choice(_ACLS))

    def _change(self, *, step: bool = False) -> Step:
        choose = self._choose
        kinds = [codes.CREATE] * 4 + [codes.CREATE2, codes.DELETE, codes.DELETE, codes.SET_DATA, codes.SET_DATA]
        kinds += [codes.CREATE_CONTAINER, codes.CREATE_TTL]
        kind = choose.choice([*kinds, codes.CHECK] if step else kinds)
        if kind in (codes.CREATE, codes.CREATE2, codes.CREATE_CONTAINER, codes.CREATE_TTL):
            return kind, self._create(kind, limited=not step)
        path = self._changed_path(limited=not step)
        if kind == codes.SET_DATA:
            return kind, string_bytes(path) + buffer_bytes(self._data()) + int_bytes(self._version())
        return kind, string_bytes(path) + int_bytes(self._version())

    def _multi(self) -> bytes:
        steps = [self._change(step=True) for _ in range(self._choose.randint(0, 5))]
        return b"".join(int_bytes(kind) + _NEXT_MULTI + body for kind, body in steps) + _END_OF_MULTI

    def _multi_read(self) -> bytes:
        kinds = self._choose.choices((codes.GET_DATA, codes.GET_CHILDREN), k=self._choose.randint(0, 4))
        reads = (
            int_bytes(kind) + _NEXT_MULTI + string_bytes(self._path()) + boolean_bytes(self._choose.random() < 0.3)
            for kind in kinds
        )
        return b"".join(reads) + _END_OF_MULTI

    def _read(self) -> Step:
        choose = self._choose
        kind = choose.choice((codes.EXISTS, codes.GET_DATA, codes.GET_CHILDREN, codes.GET_CHILDREN2, codes.GET_ACL))
        watch = b"" if kind == codes.GET_ACL else boolean_bytes(choose.random() < 0.6)
        return kind, string_bytes(self._path()) + watch

    def _auth(self) -> bytes:
        choose = self._choose
        scheme = choose.choice(("digest",) * 8 + ("ip", "nobody", "world"))
        return int_bytes(0) + string_bytes(scheme) + buffer_bytes(choose.choice(_CREDENTIALS))

    def _quota(self) -> Step:
        path = f"{self._root}/{_LIMITED}"
        return self._choose.choice(("limit", "limit", "unlimit")), path, self._choose.choice(_LIMITS)

    def _watched(self) -> list[bytes]:
        """The lists of a setWatches2."""
        return [
            vector_bytes([string_bytes(self._good_path()) for _ in range(self._choose.randint(0, 2))]) for _ in range(5)
        ]

    def _step(self) -> Step:
        client = self._choose.randrange(SESSIONS)
        chance = self._choose.random()
        for limit, make in _STEPS:
            if chance < limit:
                return client, *make(self)
        return client, "ask", *self._read()

    def _restart(self) -> Step:
        if not self._restarts:
            return "ask", *self._read()
        return "restart", [self._watched() for _ in range(SESSIONS)]

    def _watch(self) -> Step:
        choose = self._choose
        kind = choose.choice((codes.ADD_WATCH, codes.ADD_WATCH, codes.REMOVE_WATCHES, codes.CHECK_WATCHES))
        mode = choose.choice((0, 1, 1, 2) if kind == codes.ADD_WATCH else (1, 2, 3, 3, 4, 5))
        return "ask", kind, string_bytes(self._path()) + int_bytes(mode)

    def _set_acl(self) -> Step:
        body = string_bytes(self._changed_path(limited=True)) + acl_bytes(self._choose.choice(_ACLS))
        return "ask", codes.SET_ACL, body + int_bytes(self._version())

    def _question(self) -> Step:
        kind = self._choose.choice((codes.GET_ALL_CHILDREN_NUMBER, codes.GET_EPHEMERALS, codes.WHO_AM_I, codes.SYNC))
        # Odd paths are left out here: ZooKeeper echoes what is beyond U+FFFF in its own kind of UTF-8, and counts the
        # root among its own children if it is asked for it without a name.
        return (
            "ask",
            kind,
            b"" if kind == codes.WHO_AM_I else string_bytes(self._choose.choice((self._good_path(), "/"))),
        )

    def _odd(self) -> Step:
        """An operation that is not known is left out: ZooKeeper closes the connection after its answer, a keeper does
        not."""
        return "ask", codes.RECONFIG, buffer_bytes(b"") * 3 + long_bytes(-1)  # nobody joins, leaves or stays


_QUOTA_NODES = ("zookeeper_limits", "zookeeper_stats")
_STEPS = (
    (0.38, lambda self: ("ask", *self._change())),
    (0.46, lambda self: ("ask", codes.MULTI, self._multi())),
    (0.49, Sequence._set_acl),
    (0.55, Sequence._watch),
    (0.58, lambda self: ("ask", codes.AUTH, self._auth())),
    (0.60, lambda self: ("close",)),
    (0.64, lambda self: ("again", self._choose.choice((3, 5)), self._watched())),
    (0.65, lambda self: ("moved", self._watched())),
    (0.655, lambda self: ("stranger", self._watched())),
    (0.68, Sequence._question),
    (0.70, lambda self: ("ask", codes.MULTI_READ, self._multi_read())),
    (0.73, Sequence._quota),
    (0.735, Sequence._odd),
    (0.739, Sequence._restart),
)
