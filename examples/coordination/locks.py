"""Locks: what must not be done twice at once is done by one process at a time, whoever and wherever it is.

A lock is a line of ephemeral sequential nodes: the lowest number holds it, each waits for the one before it, so it is
given in the order of asking. A holder that dies does not keep it: its node goes with its session.
"""

import threading

from example_keeper import WAIT_S, address, client, place

WORKERS, TIMES = 4, 5


def work(hosts: str, path: str, account: list[int], inside: list[int]) -> None:
    with client(hosts) as zk:
        lock = zk.Lock(f"{path}/lock")
        for _ in range(TIMES):
            with lock:
                inside.append(inside[-1] + 1)
                balance = account[0]  # read, then write: without the lock two of these would lose one
                account[0] = balance + 1
                inside.append(inside[-1] - 1)


def run(hosts: str) -> None:
    with place(hosts, "locks") as path, client(hosts) as zk:
        account, inside = [0], [0]
        workers = [threading.Thread(target=work, args=(hosts, path, account, inside)) for _ in range(WORKERS)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(WAIT_S)
        print(f"{WORKERS} workers added {account[0]} in all; at most {max(inside)} was inside at a time")

        with client(hosts) as crashing:
            crashing.Lock(f"{path}/lock").acquire()
            print("held by somebody else:", not zk.Lock(f"{path}/lock").acquire(blocking=False))
        print("free again when its session has ended:", zk.Lock(f"{path}/lock").acquire(timeout=WAIT_S))


if __name__ == "__main__":
    with address() as hosts:
        run(hosts)
