"""Our zookeeper-shell.sh and ZooKeeper's own shell: the same commands, on the keeper and on a real ZooKeeper.

All four outputs must be equal, line by line. Zxids are told by their order, times and sessions are left out; events of
watches come from a thread of their own in Java, so they are compared apart, in their order.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import zookeeper
from waits import WAIT_S_MAX

from headrace import Keeper

BIN = Path(sys.executable).parent
LINES = """\
create /t
ls /t
ls /zookeeper
create /t/a hello
create /t/a again
create /t/a/b "two words"
create /t/a/c 'single quotes'
create -s /t/a/s- 1
create -s -e /t/a/s- 2
create -es /t/a/s- 3
create -e /t/e x
create /t/e/child
create -c /t/c
create -t 100000 /t/ttl x
create -s -t 100000 /t/ttl- x
create -t x /t/bad
create -t 0 /t/bad
create -t 5 -e /t/bad
create -t 5 -c /t/bad
create -c -e /t/bad
create -z /t/bad
create -t
create
create t
create /t/
create /t//x
create /t/../x
create /t/. x
create /nowhere/x
create -s /t/
create /t/acl x world:anyone:r
create /t/acl2 x world:anyone:cdrwaq,nonsense
create /t/acl3 x auth::r
create /t/acl4 x nobody:x:r
create /t/acl5 x ip:127.0.0.1:cdrwa,digest:ann:x1:r
ls /t
ls -s /t/a
ls -R /t
ls -s -R /t/a
ls /t x
ls -?
ls
ls -z /t
ls /none
get /t/a
get -s /t/a
get /t/a/b
get /t
get -b /t/a
get -x /t/a
get -x /t
get -sx /t/a/b
get /none
get
get /t/a -q
set /t/a changed
set /t/a -s changed
set -v 9 /t/a x
set /t/a x -v 2
set /t/a x -v
set /t/a
set /none x
set -b /t/a aGk=
set /t/a -5
get /t/a
get /t/acl5
stat /t/a
stat /none
stat
getAcl /t
getAcl -s /t/acl
getAcl /t/acl5
getAcl /none
set /t/acl x
setAcl /t/a world:anyone:cdrwa
setAcl -s /t/a world:anyone:ra
setAcl -v 7 /t/a world:anyone:cdrwa
set /t/a locked
setAcl /t/a
addauth digest ann:pw
create /t/mine x auth:ann:pw:cdrwa
getAcl /t/mine
whoami
getAllChildrenNumber /t
getAllChildrenNumber
getEphemerals /t/e
sync /t
sync
delete /t/none
delete /t/a
delete -v 9 /t/a/b
delete /t/a/b 0
delete
redo 0
redo 500
history
foo bar
printwatches
printwatches off
printwatches
removewatches /t/a
removewatches
addWatch -m nonsense /t
addWatch
setquota /t
setquota -n 0 /t
setquota -n x /t
setquota -n 5 -b 5 /t
setquota -n 50 /none
setquota -n 50 /zookeeper/quota/x
setquota -N 50 /t/a
setquota -N 50 /t
setquota -B 5000 /t/a
listquota /t/a
setquota -n 1 /t/a/c
delquota -b /t/a
delquota /t/a
delquota /t/a
listquota /t/a
reconfig
reconfig -s
reconfig -v zz -add 2=x:1:2;3
reconfig -add 2=x:1:2;3 -members 1=y
reconfig -add
reconfig -remove 3
reconfig -v 1 -members 1=x:1:2;3
deleteall /t/none
deleteall /t -b x
deleteall -b 3 /t/a
deleteall /t
ls /t
setAcl /t/a world:anyone:cdrwa
deleteall -b 3 /t
ls /t
delete /zookeeper
close
ls /
"""
WATCHED = """\
create /w x
get -w /w
set /w y
sync /w
ls -w /w
stat -w /w/c
create /w/c
sync /w
addWatch /w
addWatch -m PERSISTENT /w
create /w/d
set /w/d z
sync /w
removewatches /w -r
sync /w
removewatches -p /w
sync /w
set /w/d z
get -w /w/d
removewatches -d /w/d
sync /w
deleteall /w
sync /
printwatches off
"""


@pytest.fixture(scope="module")
def zookeeper_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    missing = zookeeper.missing_program()
    if missing:
        pytest.skip(f"{missing} is not installed")
    with zookeeper.running(tmp_path_factory.mktemp("zookeeper")) as port:
        yield f"127.0.0.1:{port}"


@pytest.fixture(scope="module")
def keeper_hosts() -> Iterator[str]:
    with Keeper(tick_ms=3000) as keeper:
        yield keeper.hosts


def our_shell(hosts: str, *args: str, lines: str = "") -> tuple[int, str]:
    done = subprocess.run(
        [str(BIN / "zookeeper-shell.sh"), hosts, *args],
        input=lines,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=WAIT_S_MAX,
        check=False,
    )
    return done.returncode, done.stdout


# What only one of the two shells says: Java's logging and its line editor, the command that Kafka's users expect.
_SKIPPED = re.compile(
    r"SLF4J|JLine support|WATCHER::|WatchedEvent|Connecting to|log4j|ERROR StatusLogger|\d\d:\d\d:\d\d"
)


def comparable(output: str) -> list[str]:
    lines = [line for line in output.splitlines() if line.strip() and not _SKIPPED.search(line)]
    text = "\n".join(lines)
    # In which order a client's identities are told is not said anywhere.
    text = re.sub(r"(?m)^(?:(?:ip|digest): .*\n)+", lambda m: "".join(sorted(m[0].splitlines(keepends=True))), text)
    text = re.sub(r"time = .*", "time = T", text)
    text = re.sub(r"ephemeralOwner = 0x[1-9a-f][0-9a-f]*", "ephemeralOwner = S", text)
    zxids = sorted({int(found, 16) for found in re.findall(r"Zxid = 0x([0-9a-f]+)", text)})
    return re.sub(r"Zxid = 0x([0-9a-f]+)", lambda m: f"Zxid = z{zxids.index(int(m[1], 16))}", text).splitlines()


def events(output: str) -> list[str]:
    found = re.findall(r"WatchedEvent (.*) zxid: (-?\d+)", output)
    found = [(event, int(zxid)) for event, zxid in found if "state:Closed" not in event]
    zxids = sorted({zxid for _, zxid in found})
    return [f"{event} z{zxids.index(zxid)}" for event, zxid in found]


def test_every_command_prints_what_zookeepers_own_shell_prints(zookeeper_hosts: str, keeper_hosts: str) -> None:
    expected = zookeeper.shell(zookeeper_hosts, lines=LINES)
    assert len(comparable(expected[1])) > 250
    for shell, hosts in ((our_shell, zookeeper_hosts), (our_shell, keeper_hosts), (zookeeper.shell, keeper_hosts)):
        found = shell(hosts, lines=LINES)
        assert comparable(found[1]) == comparable(expected[1])
        assert found[0] == expected[0]


def test_watches_print_the_events_that_zookeepers_own_shell_prints(zookeeper_hosts: str, keeper_hosts: str) -> None:
    expected = zookeeper.shell(zookeeper_hosts, lines=WATCHED)[1]
    assert len(events(expected)) >= 10
    for shell, hosts in ((our_shell, zookeeper_hosts), (our_shell, keeper_hosts), (zookeeper.shell, keeper_hosts)):
        found = shell(hosts, lines=WATCHED)[1]
        assert events(found) == events(expected)
        assert comparable(found) == comparable(expected)


@pytest.mark.parametrize("command", ["ls /", "ls /none", "foo", "create", "set /zookeeper x -v 7"])
def test_one_command_ends_with_the_exit_code_of_zookeepers_own_shell(zookeeper_hosts: str, command: str) -> None:
    expected = zookeeper.shell(zookeeper_hosts, *command.split())
    found = our_shell(zookeeper_hosts, *command.split())
    assert found[0] == expected[0]
    assert comparable(found[1]) == comparable(expected[1])
