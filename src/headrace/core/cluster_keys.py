"""Settings that ask for more than one broker. There is no cluster yet, so whoever gives one is told at start.

Keys and values in, lines for people out: one line about coordination (ZooKeeper, KRaft), one about replicas. What the
settings mean to the broker is decided elsewhere; most of them mean nothing to it.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.core.settings.reading import GivenSetting

COORDINATION = (
    "zookeeper.connect",
    "process.roles",
    "controller.quorum.voters",
    "controller.quorum.bootstrap.servers",
)
REPLICATION = (
    "default.replication.factor",
    "min.insync.replicas",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "transaction.state.log.min.isr",
    "share.coordinator.state.topic.replication.factor",
    "share.coordinator.state.topic.min.isr",
)
CLUSTER_KEYS = (*COORDINATION, *REPLICATION)


def cluster_warnings(given: "Mapping[str, GivenSetting]") -> Iterator[str]:
    """`given` holds, by key, the entry that counts."""
    coordination = [given[key] for key in COORDINATION if key in given and given[key].text.strip()]
    if coordination:
        yield (
            f"{_listed(coordination)}: clusters are not supported yet, so this broker runs alone and knows no other;"
            f" start only one, and remove the setting{'s' if len(coordination) > 1 else ''}"
        )
    replication = [given[key] for key in REPLICATION if key in given and _is_above_one(given[key].text)]
    if replication:
        yield (
            f"{_listed(replication)}: one broker keeps one replica, so every topic has replication factor 1 and"
            f" acks=all waits for this broker alone; set {'them' if len(replication) > 1 else 'it'} to 1"
        )


def _listed(given: "list[GivenSetting]") -> str:
    return ", ".join(f"{each.key}={each.text.strip()} ({each.where})" for each in given)


def _is_above_one(text: str) -> bool:
    try:
        return int(text) > 1
    except ValueError:
        return False
