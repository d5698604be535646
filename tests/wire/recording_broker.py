"""`headrace`, except that its broker writes down which client sent which request in which version.

HeadraceProcess starts this in place of `headrace` when pytest was given --record-requests. A line is written when
something is seen for the first time, and only for a request that the broker took: what it refused is not served.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING

SOURCE = Path(__file__).resolve().parent.parent.parent / "src"
sys.path.insert(0, str(SOURCE))  # interpreted: what mypyc has compiled cannot be listened to

from headrace.broker import router  # noqa: E402
from headrace.broker.handlers import NAMES, TABLE  # noqa: E402
from headrace.protocol import fetch, produce  # noqa: E402
from headrace.protocol.messages import API_VERSIONS, decode_request, request_is_flexible  # noqa: E402
from headrace.protocol.wire import skip_tags  # noqa: E402

if TYPE_CHECKING:
    from headrace.broker.connection import Connection
    from headrace.protocol.framing import Chunk

RECORD_VARIABLE = "HEADRACE_TEST_RECORD"
BARE = ("bare", "")  # a socket of the tests' own
BARE_IDS = ("raw", "", "\ufffd\ufffd")  # the client ids that it uses: its own, none, and one that is no text
SOFTWARE_SINCE = 3  # the version of ApiVersions in which a client tells its name
_HEADER = Struct(">hhih")
_AIOKAFKA = re.compile(r"aiokafka-(?:(\d\S*)|\w+-\d+)")  # it tells its name in its client id only


class RecordingRouter(router.Router):
    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self._file = os.open(os.environ[RECORD_VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._seen: set[tuple[str, ...]] = set()
        # The connections are kept, or another one could get the id of one that is gone, and with it its client.
        self._clients: dict[int, tuple[Connection, tuple[str, str]]] = {}

    def dispatch(self, connection: Connection, chunk: Chunk, start: int, end: int) -> None:
        frame = bytes(chunk.view[start:end])  # the chunk may be used again when the request has been handled
        super().dispatch(connection, chunk, start, end)
        key, version, _, size = _HEADER.unpack_from(frame)
        body = frame[_HEADER.size + max(size, 0) :]
        client_id = frame[_HEADER.size : _HEADER.size + max(size, 0)].decode("utf-8", "replace")
        if version in served()[key]:
            client = self._client(connection, key, version, client_id, body)
            self._write(*client, NAMES[key], str(version))

    def _client(self, connection: Connection, key: int, version: int, client_id: str, body: bytes) -> tuple[str, str]:
        known = self._clients.get(id(connection))
        if client_id in BARE_IDS and known is None:
            known = connection, BARE
        elif key == API_VERSIONS and version >= SOFTWARE_SINCE:
            at = skip_tags(memoryview(body), 0) if request_is_flexible(key, version) else 0
            asked = decode_request(key, version, memoryview(body), at)
            known = connection, (asked.client_software_name, asked.client_software_version)
        elif known is None:
            told = _AIOKAFKA.fullmatch(client_id)
            known = connection, ("aiokafka", told[1] or "") if told else (f"client id {client_id}", "")
        self._clients[id(connection)] = known
        return known[1]

    def _write(self, *words: str) -> None:
        if words not in self._seen:
            self._seen.add(words)
            os.write(self._file, ("\t".join(words) + "\n").encode())


def served() -> dict[int, range]:
    """The versions that are really taken; Produce is advertised from 0 on for the sake of old clients."""
    return {
        produce.KEY: range(produce.LOW, produce.HIGH + 1),
        fetch.KEY: range(fetch.LOW, fetch.HIGH + 1),
        **{api.key: range(api.low, api.high + 1) for api in TABLE},
    }


def served_by_name() -> dict[str, range]:
    return {NAMES[key]: versions for key, versions in sorted(served().items())}


def main() -> None:
    from headrace.broker import node
    from headrace.cli.main import main

    assert node.Router is router.Router
    node.Router = RecordingRouter
    main()


if __name__ == "__main__":
    main()
