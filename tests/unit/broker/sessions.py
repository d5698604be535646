"""The session of a client that a test puts behind a request."""

from headrace.broker.client_session import ClientSession


def asking(client_id=None, *, port=9, listener="PLAINTEXT", local_host="127.0.0.1", **facts):
    session = ClientSession(f"127.0.0.1:{port}", listener, local_host, **facts)
    session.client_id = client_id
    return session
