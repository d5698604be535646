"""A whole node that is opened but not run: handlers are called as the router calls them, on this thread."""

import dataclasses
from types import SimpleNamespace

import pytest
from sessions import asking

from headrace.broker.api import Later, Request
from headrace.broker.handlers import load_all
from headrace.broker.node import Node
from headrace.broker.steps import Steps
from headrace.core.clock import ManualClock
from headrace.core.settings.broker import BrokerSettings
from headrace.core.steps import finish
from headrace.protocol import messages
from headrace.protocol.message_reader import compile_reader
from headrace.protocol.message_writer import compile_writer

APIS = {api.key: api for api in load_all()}


@pytest.fixture
def make_node(tmp_path):
    """Opens nodes on the same data, one after another; closes what is left open."""
    opened = []

    def make(**settings):
        given = {name: settings.pop(name) for name in ("disk", "authorizer", "quota") if name in settings}
        settings.setdefault("log_dirs", (str(tmp_path / "data"),))
        node = Node(BrokerSettings(port=0, **settings), clock=ManualClock(), **given)
        opened.append(node)
        node.open()
        return node

    yield make
    for node in opened:
        node.close()


@pytest.fixture
def node(make_node):
    return make_node()


def ask(node, api_key, version=None, **body):
    """A request as a client sees it: through bytes to the handler, and its answer through bytes back."""
    api = APIS[api_key]
    version = api.high if version is None else version
    sent = bytearray()
    compile_writer(messages._schema(api_key, version, "request")).write(sent, body)
    decoded = api.read(version, bytes(sent), 0)
    answer = api.handle(node.parts, Request(api_key, version, 1, asking("test"), decoded))
    if isinstance(answer, Steps):
        answer = finish(answer.body)
    assert not isinstance(answer, Later)
    if not isinstance(answer, bytes):
        assert_fields_are_known(answer, api)
    received = messages.encode_response(api_key, version, 1, answer)
    schema = messages._schema(api_key, version, "response")
    at = 5 if schema.__flexible__ and api_key != messages.API_VERSIONS else 4
    entity, end = compile_reader(schema).read(received, at)
    assert end == len(received)
    return entity


def assert_fields_are_known(answer, api):
    """A key that no version has is a slip of the pen, which the writer would drop without a word."""
    schemas = [messages._schema(api.key, version, "response") for version in range(api.low, api.high + 1)]
    _assert_known(answer, schemas, api.name)


def _assert_known(answer, schemas, where):
    fields = {}
    for schema in schemas:
        for field in dataclasses.fields(schema):
            fields.setdefault(field.name, []).append(field.type)
    assert set(answer) <= set(fields), where
    for name, value in answer.items():
        inner = [nested for annotation in fields[name] for nested in _nested(annotation)]
        for item in value if isinstance(value, list | tuple) else [value]:
            if isinstance(item, dict):
                _assert_known(item, inner, f"{where}.{name}")


def _nested(annotation):
    for argument in getattr(annotation, "__args__", [annotation]):
        if dataclasses.is_dataclass(argument):
            yield argument
        elif hasattr(argument, "__args__"):
            yield from _nested(argument)


def create(node, name, partitions=1, **configs):
    """Makes a topic the way a client does; returns its result."""
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": -1,
        "assignments": [],
        "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
    }
    return ask(node, 19, topics=[topic], timeout=1000).topics[0]


@pytest.fixture
def client():
    return SimpleNamespace(ask=ask, create=create)
