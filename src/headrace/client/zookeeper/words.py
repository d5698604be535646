"""Four-letter words: what a ZooKeeper server tells anybody over a plain connection."""

import socket
from typing import Final

from headrace.client.zookeeper.connect_string import Address

ANSWER_BYTES_MAX: Final = 64 << 20


def ask_word(server: Address, word: str, wait_s: float) -> str:
    """OSError if nobody answers."""
    with socket.create_connection(server, timeout=wait_s) as connection:
        connection.sendall(word.encode())
        answer = bytearray()
        while len(answer) < ANSWER_BYTES_MAX:
            part = connection.recv(65536)
            if not part:
                break
            answer += part
    return answer.decode("utf-8", "replace")
