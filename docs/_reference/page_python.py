"""What a Python program calls: the functions of `import headrace as hr` that declare nothing."""

import inspect

from page_declarations import section
from page_parts import plain, table, whole

import headrace
from headrace.streaming import declare

INTRO = (
    "What a script, a notebook or a test calls, as `import headrace as hr`. How they go together: "
    "[Pipelines from Python](../pipelines.md#from-python), [Tables](../tables.md#from-other-tools), "
    "[Testing](../testing.md#pipelines)."
)


def page() -> str:
    names = [name for name in headrace.__all__ if not hasattr(declare, name)]
    functions = [each for each in (getattr(headrace, name) for name in names) if inspect.isfunction(each)]
    index = table(
        ("function", "what it does"),
        [
            (f"[`hr.{each.__name__}`](#hr{each.__name__})", plain(inspect.getdoc(each).partition("\n\n")[0]))
            for each in functions
        ],
    )
    return whole("Python", INTRO, index, *(section(each) for each in functions))
