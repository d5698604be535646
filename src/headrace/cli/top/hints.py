"""What `headrace top` says in place of an empty table: why it is empty, and what to type. Text only, no screen."""

from headrace.client.look import Look

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


def topics_hint(look: Look, *, where: str, pattern: str) -> str:
    if any(not each.internal for each in look.topics):
        return _filtered("topic", pattern)
    return (
        "No topics yet. To make one, type in another terminal:\n"
        f"  echo hello | headrace produce greetings --create{_option(where)}"
    )


def groups_hint(look: Look, *, where: str, pattern: str) -> str:
    if look.groups:
        return _filtered("group", pattern)
    topic = next((each.name for each in look.topics if not each.internal), None)
    if topic is None:
        return "No consumer groups yet."
    return (
        "No consumer groups yet. To make one, type in another terminal:\n"
        f"  headrace consume {topic} --follow --group readers{_option(where)}"
    )


def _filtered(noun: str, pattern: str) -> str:
    return f"No {noun} has {pattern!r} in its name; type / and then escape to see all."


def _option(where: str) -> str:
    return "" if where == DEFAULT_BOOTSTRAP else f" -b {where}"
