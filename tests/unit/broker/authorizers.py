"""An authorizer that a test plugs into a node: it denies what the test says, and remembers what it was asked."""

from headrace.broker.rights import Need


class FakeAuthorizer:
    def __init__(self):
        self.denied = set()  # needs, or (need, name), or (need, name, principal's name)
        self.asked = []  # (need, name)

    def allows(self, session, operation, resource, name):
        need = Need(operation, resource)
        self.asked.append((need, name))
        return self.denied.isdisjoint({need, (need, name), (need, name, session.principal.name)})

    def allows_on_any(self, session, operation, resource):
        self.asked.append((Need(operation, resource), None))
        return Need(operation, resource) not in self.denied

    def view(self, session):
        return frozenset(self.denied), session.principal

    def needs(self):
        return {need for need, _ in self.asked}
