"""Takes what a consumer has: waits for the first record only, so that a slow topic is seen at once."""

from typing import Any


def take(consumer: Any, count_max: int, wait_s: float) -> list[Any]:
    first = consumer.poll(wait_s)
    if first is None:
        return []
    return [first, *consumer.consume(count_max - 1, 0)] if count_max > 1 else [first]
