"""What several rooms' tests share: a real API server for each process that runs tests, where there are binaries."""

import gc
import re
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.support.apiserver import Address, RealApiServer, assets
from tests.support.gathering import N_LEFT_OUT, PEAK_BYTES, Gathering, is_last, peak_bytes

# No property fails for the speed of the machine, nor for what else it has to do.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
# A failure is enough: it is neither kept nor made shorter, which would take minutes for each mutant.
settings.register_profile(
    "mutant", settings.get_profile("any machine"), database=None, phases=(Phase.explicit, Phase.generate)
)

_ABSENT = "KUBEBUILDER_ASSETS names no folder with etcd and kube-apiserver"

#: Why a test may be skipped: the machine or the checkout lacks what it needs. Any other reason fails the run.
_MAY_BE_ABSENT: Final = re.compile(
    r"Skipped: (?:(?:kubectl|bash) is not on PATH"
    r"|(?:kubectl|promtool|prometheus|playwright|helm-python-sdk) is not installed"
    r"|no Chromium on this machine|no kube-(?:scheduler|controller-manager) beside the API server's binaries"
    r"|could not import '(?:cel_expr_python|uvloop|atheris)|judged in a run of the whole suite only"
    r"|no namespace of processes may be made here|the history does not reach to 0\.1\.0"
    r"|other_form is not set: the rule has one form"
    r"|no \S+ here$|this machine has no |this system has no clock|this system's kernel|terminals end otherwise"
    r"|children are found in /proc)"
)


@pytest.fixture(scope="session")
def real_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """Yield the address of one real API server, for the whole run or one worker of it; for tests marked `real` only."""
    binaries = assets()
    assert binaries is not None, _ABSENT
    server = RealApiServer(binaries, tmp_path_factory.mktemp("api-server"))
    yield server.start()
    server.stop()


def pytest_addoption(parser: pytest.Parser) -> None:
    """
    Add `--as-whole`, which runs the tests that judge a run of the whole suite in a run of a part of it too.

    `--lives`: play more of the lives that are drawn by seed, or fewer; other blocks of `drawn_seeds`. `--minor`: play
    the contract of the embedded cluster on another version. `--allocations`: compare more allocations of devices with
    the reference. `--slow-runbooks`: try the runbooks too that take long.
    """
    parser.addoption("--as-whole", action="store_true", help="judge as if the whole suite had run")
    parser.addoption("--lives", type=int, metavar="N", help="play N lives that are drawn by seed")
    parser.addoption("--allocations", type=int, metavar="N", help="compare N allocations with the reference")
    parser.addoption("--slow-runbooks", action="store_true", help="try the runbooks too that take long")
    parser.addoption("--minor", type=int, metavar="N", help="the embedded cluster of the contract is of 1.N")


def pytest_configure(config: pytest.Config) -> None:
    """Register the hooks that run tests marked `last` once, where the tests run in several processes."""
    config.pluginmanager.register(Gathering(), "gathering")
    config.pluginmanager.register(_Collector(), "collector")


#: Of a process that runs tests; 500 MiB are usual, of which half are the tests themselves, once they are collected.
_MAX_BYTES: Final = 600 << 20
#: As the interpreter sets them. A daemon in this process sets others.
_THRESHOLDS: Final = gc.get_threshold()
#: Blocks of memory that may be allocated between two full collections, some 50 MB: each takes 0.3 s.
_UNCOLLECTED_BLOCKS: Final = 500_000


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """
    Gather tests without collections of garbage, a third of its 13 s, and freeze what was made: it lives until the end.

    Else each full collection visits all tests and modules, in 0.4 s: a fifth of the CPU time of tests of the engine.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


class _Collector:
    """Frees what tests left in cycles."""

    def __init__(self) -> None:
        self._n_blocks = sys.getallocatedblocks()

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self) -> None:
        """
        Let the collector run as before the test; collect all if much was allocated since, and freeze what is left.

        A daemon that a test runs in this process freezes all that lives, for its own speed, and ends full collections:
        127,000 to 147,000 objects were still frozen at the end of each of three files, with all cycles of that test
        and of those before it: a test of chaos left 2 to 20 MB.
        """
        gc.set_threshold(*_THRESHOLDS)
        if sys.getallocatedblocks() - self._n_blocks > _UNCOLLECTED_BLOCKS:
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            self._n_blocks = sys.getallocatedblocks()


@pytest.fixture
def whole_suite(pytestconfig: pytest.Config) -> None:
    """Skip the test in a run of a part of the suite."""
    option = pytestconfig.option
    is_whole = pytestconfig.args_source is pytest.Config.ArgsSource.TESTPATHS and not (
        option.keyword or option.markexpr or option.deselect or getattr(option, "lf", False)
    )
    if not is_whole and not option.as_whole:
        pytest.skip("judged in a run of the whole suite only, or with --as-whole")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """
    Sort tests marked `last` behind all others.

    Tests marked `real` are left out where there is no server for them, which the end of the run says in one line.
    """
    items.sort(key=is_last)
    if assets() is not None:
        return
    left_out = [item for item in items if item.get_closest_marker("real")]
    if left_out:
        config.stash[N_LEFT_OUT] = len(left_out)
        items[:] = [item for item in items if not item.get_closest_marker("real")]


def _skipped(config: pytest.Config) -> Counter[str]:
    """Return how many tests were skipped by each reason."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    skipped = [] if reporter is None else reporter.stats.get("skipped", [])
    return Counter(str(report.longrepr[2]) for report in skipped)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run if a test was skipped for a reason that is not listed, or if a process took too much memory."""
    may_be_skipped = all(map(_MAY_BE_ABSENT.match, _skipped(session.config)))
    if not may_be_skipped or _peak_bytes(session.config) > _MAX_BYTES:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _peak_bytes(config: pytest.Config) -> int:
    """Return the most memory of a process that ran tests."""
    return config.stash.get(PEAK_BYTES, 0) or peak_bytes()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print why tests were skipped, each reason once, one line for those on a real API server, and the memory taken."""
    for reason, n in sorted(_skipped(config).items()):
        may_be = "" if _MAY_BE_ABSENT.match(reason) else ": not listed in tests/conftest.py, so the run fails"
        terminalreporter.line(f"{n} tests skipped: {reason.removeprefix('Skipped: ')}{may_be}")
    peak = _peak_bytes(config)
    is_over = ": too much, so the run fails" if peak > _MAX_BYTES else ""
    terminalreporter.line(f"a process took {peak >> 20} MiB of at most {_MAX_BYTES >> 20}{is_over}")
    n_left_out = config.stash.get(N_LEFT_OUT, 0)
    if n_left_out:
        terminalreporter.line(f"{n_left_out} tests on a real API server skipped: {_ABSENT}")
