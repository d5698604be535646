"""The JSON lines of the verifiable producer and consumer: a time, a name, what happened."""

import json
import time


def say(name: str, **fields: object) -> None:
    event = {"timestamp": time.time_ns() // 1_000_000, "name": name, **fields}
    print(json.dumps(event, separators=(",", ":"), ensure_ascii=False), flush=True)
