"""Where a client is, as Kafka writes it down and shows it: a slash, then its address without the port."""

from headrace.broker.api import Request


def client_host(request: Request) -> str:
    connection = request.connection
    return "" if connection is None else "/" + connection.peer.rpartition(":")[0].strip("[]")
