"""A real producer that loses answers: the broker has written the batch, the producer sends it again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import RequestTimedOutError
from aiokafka.protocol.produce import ProduceRequest


@contextmanager
def lost_answers(producer: AIOKafkaProducer) -> Iterator[list[ProduceRequest]]:
    """The first answer to each batch is dropped after it arrived; yields the requests that were sent."""
    send = producer.client.send
    requests: list[ProduceRequest] = []

    async def send_and_lose(node_id: int, request: Any, **options: Any) -> Any:
        answer = await send(node_id, request, **options)
        if isinstance(request, ProduceRequest):
            requests.append(request)
            if len(requests) % 2 == 1:
                raise RequestTimedOutError
        return answer

    producer.client.send = send_and_lose
    try:
        yield requests
    finally:
        producer.client.send = send
