"""Configuration: it is kept in one place, and a change reaches every process that uses it.

Each process watches the node: it reads the value, and is told when there is another. A process that changes the value
says which version it has read; if somebody was faster it is refused, and reads again before it decides.
"""

import json

from example_keeper import Seen, address, client, place
from kazoo.exceptions import BadVersionError


def run(hosts: str) -> None:
    with place(hosts, "configuration") as path, client(hosts) as ann, client(hosts) as bob, client(hosts) as service:
        ann.set(path, json.dumps({"limit": 10}).encode())

        limit = Seen()
        service.DataWatch(path, lambda data, stat: limit(json.loads(data)["limit"]))
        print("the service starts with limit", limit.wait_for(lambda value: value is not None))

        ann.set(path, json.dumps({"limit": 20}).encode())
        print("without a restart it has limit", limit.wait_for(lambda value: value == 20))

        read_by_ann, read_by_bob = ann.get(path)[1].version, bob.get(path)[1].version
        ann.set(path, json.dumps({"limit": 30}).encode(), version=read_by_ann)
        try:
            bob.set(path, json.dumps({"limit": 5}).encode(), version=read_by_bob)
        except BadVersionError:
            print("bob is refused: ann has changed it since he read it")
        print("the service has limit", limit.wait_for(lambda value: value == 30))


if __name__ == "__main__":
    with address() as hosts:
        run(hosts)
