"""Curator's own tests on a keeper, which is killed where they stop their server.

`make keeper-curator` runs all of them.
"""

from __future__ import annotations

from pathlib import Path

import curator
import maven
import pytest

FRAMEWORK, RECIPES = "org.apache.curator.framework.imps.", "org.apache.curator.framework.recipes."
LEFT_OUT = (
    # These start an ensemble of several servers.
    f"{RECIPES}cache.TestCuratorCacheConsistency",
    f"{RECIPES}cache.TestPathChildrenCacheInCluster",
    f"{RECIPES}cache.TestCuratorCacheEdges#testServerLoss",
    f"{RECIPES}leader.TestLeaderSelectorCluster",
    f"{RECIPES}leader.TestLeaderLatchCluster",
    f"{RECIPES}locks.TestInterProcessSemaphoreCluster",
    f"{RECIPES}queue.TestLongNetworkPartition",
    f"{FRAMEWORK}TestFrameworkEdges#testProtectionWithKilledSession",
    f"{FRAMEWORK}TestReadOnly",
    f"{FRAMEWORK}TestReconfiguration",
    f"{FRAMEWORK}TestWithCluster",
    # This puts a connection factory of its own into ZooKeeper's server.
    f"{RECIPES}leader.TestLeaderSelectorEdges",
)
QUICK = (
    f"{FRAMEWORK}TestTransactionsNew",
    f"{FRAMEWORK}TestTransactionsOld",
    f"{FRAMEWORK}TestTtlNodes",
    f"{FRAMEWORK}TestEnsureContainers",
    f"{FRAMEWORK}TestEnabledSessionExpiredState#testReconnectWithoutExpiration",
    f"{FRAMEWORK}TestFrameworkEdges#testSessionKilled",
    f"{FRAMEWORK}TestWatchesBuilder#testRemoveWatchInBackgroundWithCallback",
    f"{FRAMEWORK}TestWatchesBuilder#testRemoveAllDataWatches",
    f"{FRAMEWORK}TestWatchesBuilder#testRemoveAllChildWatches",
    f"{FRAMEWORK}TestWatchesBuilder#testPersistentWatch",
    f"{FRAMEWORK}TestWatchesBuilder#testPersistentRecursiveWatch",
    f"{FRAMEWORK}TestWatchesBuilder#testPersistentRecursiveDefaultWatch",
    f"{RECIPES}watch.TestPersistentWatcher#testConnectionLostRecursive",
    f"{RECIPES}watch.TestPersistentWatcher#testNamespacedWatching",
    f"{RECIPES}locks.TestInterProcessMutex#testWaitingProcessKilledServer",
    f"{RECIPES}locks.TestInterProcessReadWriteLock#testBasic",
    f"{RECIPES}leader.TestLeaderLatch#testBasic",
    f"{RECIPES}leader.TestLeaderLatch#testWatchedNodeDeletedOnReconnect",
)
TRIES = 3  # some have races of their own: what fails is run again by itself, and must pass


@pytest.fixture(scope="module")
def needs_java() -> None:
    missing = maven.missing_program("javac")
    if missing:
        pytest.skip(f"{missing} is not installed")


def _run(wanted: list[str], directory: Path) -> dict[str, str]:
    """What fails again and again, with what it said."""
    failed: dict[str, str] = {}
    for attempt in range(TRIES):
        results = list(curator.run(wanted, LEFT_OUT, directory / str(attempt)))
        print(f"try {attempt + 1}: {sum(each.how == 'PASSED' for each in results)} of {len(results)} passed")
        assert len(results) >= len(wanted)
        failed = {each.test: each.message for each in results if each.how in ("FAILED", "ABORTED")}
        if not failed:
            break
        for test, message in failed.items():
            print(f"failed: {test}: {message}")
        wanted = list(failed)
    return failed


def test_reconnects_watches_transactions_locks_and_leaders_work_on_a_keeper(needs_java: None, tmp_path: Path) -> None:
    assert _run(list(QUICK), tmp_path) == {}


def test_all_of_curators_tests_work_on_a_keeper(
    needs_java: None, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if not request.config.getoption("--whole"):
        pytest.skip("make keeper-curator runs it")
    left_out = {each for each in LEFT_OUT if "#" not in each}
    assert _run([each for each in curator.test_classes() if each not in left_out], tmp_path) == {}
