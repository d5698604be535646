"""Membership: every process knows who is there, and soon knows who has gone.

A member is an ephemeral node: it lives as long as the session that made it. Leaving ends the session; a crash, or a
network that is cut, ends it after its time-out. Nobody has to tell the others: they watch the children of the group.
"""

from example_keeper import Seen, address, client, place


def run(hosts: str) -> None:
    with place(hosts, "members") as group, client(hosts) as watching:
        members = Seen()
        watching.ChildrenWatch(group, lambda names: members(sorted(names)))
        members.wait_for(lambda names: names == [])

        with client(hosts) as ann:
            ann.create(f"{group}/ann", b"10.0.0.7", ephemeral=True)
            with client(hosts) as bob:
                bob.create(f"{group}/bob", b"10.0.0.8", ephemeral=True)
                print("members:", members.wait_for(lambda names: names == ["ann", "bob"]))
            print("bob has left; members:", members.wait_for(lambda names: names == ["ann"]))
            owner = watching.get(f"{group}/ann")[1].ephemeralOwner
            print("ann's node belongs to her session:", owner == ann.client_id[0])
        print("ann has left; members:", members.wait_for(lambda names: names == []))


if __name__ == "__main__":
    with address() as hosts:
        run(hosts)
