"""Leader election: one process leads; when it gives up or its session ends, the next one takes over.

Each candidate makes an ephemeral sequential node; the lowest number leads. Everybody else watches the one just before
it, so that the end of a leader wakes one candidate and not all of them. kazoo's Election does exactly this.
"""

import threading

from example_keeper import WAIT_S, Seen, address, client, place

NAMES = ("ann", "bob", "cleo")


def stand(hosts: str, path: str, name: str, led: list[str], may_end: threading.Event) -> None:
    def lead() -> None:  # it leads as long as this goes on, and as its session lasts
        led.append(name)
        may_end.wait(WAIT_S)

    with client(hosts) as zk:
        zk.Election(path, name).run(lead)


def run(hosts: str) -> None:
    with place(hosts, "election") as path, client(hosts) as zk:
        in_line = Seen()
        zk.ChildrenWatch(path, lambda nodes: in_line(len(nodes)))
        led: list[str] = []
        may_end = threading.Event()
        candidates = []
        for number, name in enumerate(NAMES, 1):
            candidates.append(threading.Thread(target=stand, args=(hosts, path, name, led, may_end)))
            candidates[-1].start()
            in_line.wait_for(lambda count, number=number: count == number)  # so that their order is known
        print("in line:", ", ".join(zk.Election(path).contenders()))
        print("leading:", ", ".join(led))
        may_end.set()
        for candidate in candidates:
            candidate.join(WAIT_S)
        print("led, one after the other:", ", ".join(led))


if __name__ == "__main__":
    with address() as hosts:
        run(hosts)
