"""Every metric of GET /metrics, from the table that it is answered from."""

from page_parts import code, plain, table, whole

from headrace.broker.metrics import FAMILIES
from headrace.streaming import run_status

INTRO = (
    "`headrace up --metrics-port 9095` serves them for Prometheus at `/metrics`, and `/health` beside them. "
    "How to use them: [Operating](../operating.md). "
    "Those named `headrace_pipeline_` are served by `headrace pipeline run --metrics-port 9096`."
)
SUFFIX = {"counter": "_total"}


def page() -> str:
    rows = [
        (
            code(f"headrace_{family.name}{SUFFIX.get(family.kind, '')}"),
            family.kind,
            ", ".join(map(code, family.labels)),
            plain(family.help),
        )
        for family in sorted(FAMILIES.values())
    ]
    rows += [
        (
            code(f"{run_status.PREFIX}{family.name}{SUFFIX.get(family.kind, '')}"),
            family.kind,
            ", ".join(map(code, (*run_status.LABELS, *family.labels))),
            plain(family.help),
        )
        for family in sorted(run_status.FAMILIES)
    ]
    return whole("Metrics", INTRO, table(("metric", "kind", "labels", "what it counts"), rows))
