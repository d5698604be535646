"""Naming: a service is found by its name, wherever it runs, and no name is given twice.

A name is a node, the address is its data. Of two processes that ask for a name at the same time one gets it: creating
a node that is there is refused. A sequential node asks for any name that nobody has.
"""

from example_keeper import address, client, place
from kazoo.exceptions import NodeExistsError, NoNodeError


def run(hosts: str) -> None:
    with place(hosts, "names") as names, client(hosts) as billing, client(hosts) as other, client(hosts) as user:
        billing.create(f"{names}/billing", b"10.0.0.7:8080")
        print("billing is at", user.get(f"{names}/billing")[0].decode())

        try:
            other.create(f"{names}/billing", b"10.0.0.8:8080")
        except NodeExistsError:
            print("a second billing is refused: the name is taken")

        try:
            user.get(f"{names}/shipping")
        except NoNodeError:
            print("shipping is not known")

        given = [each.create(f"{names}/worker-", sequence=True).rpartition("/")[2] for each in (billing, other)]
        print("names that nobody had:", ", ".join(given))


if __name__ == "__main__":
    with address() as hosts:
        run(hosts)
