"""How durations are summed up, and ratios made and compared."""

import msgspec
import pytest

from tests.bench.core_level import CoreResult
from tests.bench.http_level import HttpResult, median_run
from tests.bench.measuring import Spread, spread_us
from tests.bench.ratios import COMMITTED, lower, ratios_of, read, regressions, write
from tests.bench.report import table
from tests.bench.results import Results, this_machine
from tests.bench.results import write as write_results
from tests.bench.runs import FLAT_SHAPES, Asked


def test_durations_are_summed_up_in_microseconds_by_entries_that_so_many_do_not_exceed():
    durations = [1000 * n for n in range(200, 0, -1)]
    assert spread_us(durations) == Spread(p50=100.0, p99=198.0, highest=200.0, n=200)


def _core(shape: str, p50: float, n_running: int = 0) -> CoreResult:
    spread = Spread(p50, p50, p50, 1)
    return CoreResult(shape, 10, n_running, 1, spread, spread, 1.0, 1.0)


def _http(shape: str, speed: float, scheduler: str = "ours") -> HttpResult:
    return HttpResult(shape, "devcluster", scheduler, 5, 1, 2, speed, 1000 / speed, 0.5, 1.0, 9.0, 0.3)


def _results(**lists) -> Results:
    return Results(msgspec.structs.replace(this_machine(), yardstick_us=50.0), **lists)


@pytest.mark.parametrize(
    ("speeds", "told"), [([900.0], 900.0), ([700.0, 900.0, 800.0], 800.0), ([900.0, 700.0], 700.0)]
)
def test_of_several_rounds_the_run_of_median_speed_is_told(speeds, told):
    runs = [_http("basic", speed) for speed in speeds]
    found = median_run(runs)
    assert (found.pods_per_s, found.cpu_ms_per_pod) == (told, 1000 / told)


def test_our_speed_is_compared_with_that_of_others_at_the_same_shape():
    measured = _results(
        http=[
            _http("basic", 800.0),
            _http("churn", 600.0),
            _http("basic", 1000.0, "binding only"),
            _http("basic", 640.0, "other checkout"),
            _http("basic", 400.0, "kube-scheduler"),
            _http("churn", 100.0, "kube-scheduler"),
        ],
    )
    rows = [line.split() for line in table(measured).splitlines() if " devcluster " in line]
    ours = {row[0]: row[-3:] for row in rows if row[2] == "ours"}
    assert ours["basic"] == ["0.80", "1.25", "2.00"]
    assert ours["churn"][-1] == "6.00"


def test_ratios_are_of_costs_within_one_run():
    found = ratios_of(
        _results(
            core=[_core("basic", 100.0), _core("affinity-zone", 150.0)],
            flatness=[_core("basic", 120.0, 150_000), _core("basic", 100.0, 1000)],
        )
    )
    assert found == {"core/affinity-zone": 3.0, "core/basic": 2.0, "flat/basic": 1.2}


def test_a_ratio_may_grow_by_a_quarter_of_what_is_committed():
    committed = {"core/x": 1.0, "core/y": 1.0, "core/z": 1.0}
    assert regressions({"core/x": 1.26, "core/y": 1.25, "core/z": 0.2, "core/new": 1.0}, committed) == [
        "core/x: 1.26, committed 1.00, at most 1.25",
        "core/new: 1.00, nothing committed to compare with",
    ]


def test_of_two_runs_the_lower_ratio_counts():
    assert lower({"a": 1.0, "b": 2.0, "c": 3.0}, {"a": 2.0, "b": 1.0}) == {"a": 1.0, "b": 1.0, "c": 3.0}


def test_written_ratios_replace_those_of_the_same_rows(tmp_path):
    path = tmp_path / "ratios.json"
    write({"b": 1.0, "a": 1.0}, path)
    write({"b": 2.0}, path)
    assert read(path) == {"a": 1.0, "b": 2.0}


def test_each_ratio_of_a_check_is_committed():
    """A check fails for one that is not."""
    asked = Asked(level="core")
    rows = {f"core/{shape.name}" for shape in asked.decided()}
    rows |= {f"flat/{shape.name}" for shape in asked.chosen(FLAT_SHAPES) if not shape.is_http_only}
    assert read(COMMITTED).keys() == rows


def test_a_run_is_printed_and_written(tmp_path):
    results = _results(core=[_core("basic", 100.0), _core("affinity-zone", 150.0)])
    write_results(results, tmp_path / "run.json")
    assert msgspec.json.decode((tmp_path / "run.json").read_bytes(), type=Results) == results
    (row,) = (line.split() for line in table(results).splitlines() if line.startswith("affinity-zone"))
    assert row[:5] == ["affinity-zone", "10", "0", "1", "150"]
