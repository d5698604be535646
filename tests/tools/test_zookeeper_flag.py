"""`--zookeeper` where a ZooKeeper answers: the brokers that are registered there are used.

The answers are those that an Apache ZooKeeper 3.9.3 gave, byte for byte, but for the broker's port; the questions must
be the very bytes that it answered.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tool_process import ok, run
from waits import WAIT_S_MAX

ASKED = (
    "0000002d000000000000000000000000000027100000000000000000000000100000000000000000000000000000000000",
    "0000001900000001000000080000000c2f62726f6b6572732f69647300",
    "0000001b00000002000000040000000e2f62726f6b6572732f6964732f3100",
)
ANSWERED = (
    "00000025000000000000271001000056dee400070000001097596932736e8e354c148c410f08f12b00",
    "0000001900000001000000000000000f00000000000000010000000131",
    "0000011800000002000000000000000f00000000000000c07b226c697374656e65725f73656375726974795f70726f746f636f6c5f6d6170223a"
    "7b22504c41494e54455854223a22504c41494e54455854227d2c22656e64706f696e7473223a5b22504c41494e544558543a2f2f3132372e302e"
    "302e313a3239303932225d2c226a6d785f706f7274223a2d312c226665617475726573223a7b7d2c22686f7374223a223132372e302e302e3122"
    "2c2274696d657374616d70223a2231222c22706f7274223a32393039322c2276657273696f6e223a357d000000000000000a000000000000000a"
    "000001a1e3801927000001a1e38019270000000000000000000000000000000000000000000000c000000000000000000000000a",
)
NO_NODE = "000000100000000100000000000000 0fffffff9b".replace(" ", "")
RECORDED_PORT = b"29092"


@contextmanager
def zookeeper(answers: list[bytes]) -> Iterator[tuple[str, list[bytes]]]:
    """Its address, and what it was asked."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.settimeout(WAIT_S_MAX)
                for answer in answers:
                    asked.append(connection.recv(4096))
                    connection.sendall(answer)
                connection.recv(4096)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}", asked
        thread.join(WAIT_S_MAX)


def test_the_brokers_that_a_zookeeper_knows_are_asked(bootstrap: str) -> None:
    port = bootstrap.rpartition(":")[2].encode()
    assert len(port) == len(RECORDED_PORT), "else the recorded lengths would be wrong"
    answers = [bytes.fromhex(each).replace(RECORDED_PORT, port) for each in ANSWERED]
    with zookeeper(answers) as (address, asked):
        listed = ok("kafka-topics.sh", "--zookeeper", address, "--list")
    assert [each.hex() for each in asked] == list(ASKED)
    assert listed.lines == ok("kafka-topics.sh", "--bootstrap-server", bootstrap, "--list").lines


def test_a_zookeeper_without_brokers_says_so() -> None:
    with zookeeper([bytes.fromhex(ANSWERED[0]), bytes.fromhex(NO_NODE)]) as (address, _):
        ran = run("kafka-topics.sh", "--zookeeper", address, "--list")
    assert ran.exit == 1
    assert ran.err == (
        f"The ZooKeeper at {address} knows no live broker in /brokers/ids; start one, or correct the path\n"
    )


def test_both_ways_to_name_a_cluster_are_one_too_many(bootstrap: str) -> None:
    ran = run("kafka-topics.sh", "--zookeeper", "127.0.0.1:2181", "--bootstrap-server", bootstrap, "--list")
    assert ran.exit == 1
    assert ran.err.startswith('Only one of "[bootstrap-server]" and "[zookeeper]" can name the cluster')
