"""What a zoo.cfg may say, and what is said about it."""

import pytest

from headrace.core.errors import OperatorError
from headrace.keeper.settings import WORDS, KeeperSettings
from headrace.keeper.zoo_cfg import read_properties

# What the documents print, and what Kafka comes with.
KAFKAS = """\
# the directory where the snapshot is stored.
dataDir=/tmp/zookeeper
# the port at which the clients will connect
clientPort=2181
# disable the per-ip limit on the number of connections since this is a non-production config
maxClientCnxns=0
admin.enableServer=false
# admin.serverPort=8080
"""
ZOOKEEPERS = """\
tickTime=2000
initLimit=10
syncLimit=5
dataDir=/tmp/zookeeper
clientPort=2181
#maxClientCnxns=60
autopurge.snapRetainCount=3
autopurge.purgeInterval=1
metricsProvider.className=org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider
metricsProvider.httpHost=0.0.0.0
metricsProvider.httpPort=7000
metricsProvider.exportJvmInfo=true
"""


def _warnings(text: str) -> list[str]:
    return read_properties(text, "zoo.cfg")[1]


def test_kafkas_and_zookeepers_own_files_are_taken_without_a_word() -> None:
    values, warnings = read_properties(KAFKAS, "zookeeper.properties")
    settings = KeeperSettings(**values)
    assert (settings.data_dir, settings.port, settings.connections_per_address_max) == ("/tmp/zookeeper", 2181, 0)
    assert warnings == []
    values, warnings = read_properties(ZOOKEEPERS, "zoo.cfg")
    settings = KeeperSettings(**values)
    assert (settings.tick_ms, settings.session_ms_min, settings.session_ms_max) == (2000, 4000, 40_000)
    assert (settings.snapshots_kept, settings.metrics_host, settings.metrics_port) == (3, "0.0.0.0", 7000)
    assert warnings == []


def test_every_setting_is_read_under_zookeepers_name() -> None:
    text = (
        "minSessionTimeout=500\nmaxSessionTimeout=9000\n4lw.commands.whitelist=stat, ruok\njute.maxbuffer=0x200000\n"
        "autopurge.snapRetainCount=7\nzookeeper.enforceQuota=FALSE\nreconfigEnabled=true\ndataLogDir=/logs\n"
    )
    assert read_properties(text, "zoo.cfg") == (
        {
            "timeout_ms_min": 500,
            "timeout_ms_max": 9000,
            "words": "stat, ruok",
            "request_bytes_max": 0x200000,
            "snapshots_kept": 7,
            "quota_enforced": False,
            "reconfig_enabled": True,
            "data_log_dir": "/logs",
        },
        [],
    )


@pytest.mark.parametrize(
    ("key", "near"),
    [("tickTme", "tickTime"), ("datadir", "dataDir"), ("clientport", "clientPort"), ("autopurge.snapRetain",
     "autopurge.snapRetainCount"), ("enforceQuotas", "enforceQuota"), ("4lw.commands.whitlist",
     "4lw.commands.whitelist")],
)  # fmt: skip
def test_an_unknown_key_is_a_warning_with_the_nearest_known_name(key: str, near: str) -> None:
    assert _warnings(f"clientPort=1\n{key}=1\n") == [
        f"zoo.cfg:2: {key} is not a setting of a keeper; did you mean {near}?"
    ]


def test_a_key_like_no_other_is_a_warning_without_a_name() -> None:
    assert _warnings("nothing.like.it=1") == ["zoo.cfg:1: nothing.like.it is not a setting of a keeper"]


@pytest.mark.parametrize(
    "key", ["secureClientPort", "ssl.keyStore.location", "authProvider.1", "enforce.auth.enabled", "skipACL"]
)
def test_what_zookeeper_has_and_a_keeper_has_not_is_said(key: str) -> None:
    (warning,) = _warnings(f"{key}=1")
    assert warning.startswith(f"zoo.cfg:1: {key} has no effect: a keeper ")
    assert "did you mean" not in warning


def test_an_ensemble_is_refused_and_one_server_is_none() -> None:
    with pytest.raises(OperatorError, match=r"^zoo.cfg:1: server.1 asks for an ensemble, .*; run Apache ZooKeeper"):
        read_properties("server.1=a:1:2\nserver.2=b:1:2\n", "zoo.cfg")
    assert _warnings("server.1=a:1:2\n") == ["zoo.cfg:1: server.1 is not used, since a keeper is one node"]
    with pytest.raises(OperatorError, match="asks for an ensemble"):
        read_properties("dynamicConfigFile=x\n", "zoo.cfg")


def test_fewer_snapshots_than_zookeeper_keeps_are_a_warning() -> None:
    values, warnings = read_properties("autopurge.snapRetainCount=1\n", "zoo.cfg")
    assert values == {"snapshots_kept": 3}
    assert warnings == ["zoo.cfg: autopurge.snapRetainCount=1 is below 3, which is used"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("clientPort=a", "zoo.cfg:1: clientPort=a is not a whole number"),
        ("enforceQuota=yes", "zoo.cfg:1: enforceQuota=yes is neither true nor false"),
    ],
)
def test_a_wrong_value_is_named(line: str, said: str) -> None:
    with pytest.raises(OperatorError, match=said):
        read_properties(line, "zoo.cfg")


def test_words_that_zookeeper_has_may_be_listed() -> None:
    assert KeeperSettings(words="ruok,gtmk,hash").allowed_words == {"ruok", "gtmk", "hash"}
    assert KeeperSettings(words="ruok, *").allowed_words == set(WORDS)
    with pytest.raises(OperatorError, match="rouk is no four-letter word"):
        KeeperSettings(words="rouk")


def test_time_outs_that_exclude_each_other_are_named() -> None:
    with pytest.raises(OperatorError, match="minSessionTimeout=6000 is above maxSessionTimeout=1000"):
        KeeperSettings(timeout_ms_max=1000)
