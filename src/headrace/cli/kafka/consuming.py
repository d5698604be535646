"""Taking records from librdkafka's consumer, and leaving it: both without waiting for what may never come."""

import threading
from typing import Any

from headrace.cli.kafka.tool import end_at_once

CLOSE_S_MAX = 5.0


def take(consumer: Any, count_max: int, wait_s: float) -> list[Any]:
    """What is there; waits for the first record only, so that a slow topic is seen at once."""
    first = consumer.poll(wait_s)
    if first is None:
        return []
    return [first, *consumer.consume(count_max - 1, 0)] if count_max > 1 else [first]


def close(consumer: Any) -> None:
    """Commits what was stored and leaves the group. Without a broker librdkafka would wait for one; this does not."""
    closing = threading.Thread(target=consumer.close, daemon=True)
    closing.start()
    closing.join(CLOSE_S_MAX)
    if closing.is_alive():
        end_at_once()
