"""A pod that is retried without end fills no log."""

import io
import json
from typing import Any

from scheduler.daemon.loop.attempt_log import AttemptLog
from scheduler.daemon.metrics.logs import configure
from scheduler.engine.model.instructions import Attempted
from scheduler.engine.model.pod_decoder import PodDecoder
from tests.support import build


def lines_of(steps: list[tuple[float, str, int]]) -> list[Any]:
    """Return the lines after a number of attempts with each result, each after some seconds."""
    stream, now_s = io.StringIO(), 1000.0
    log = AttemptLog(configure(verbosity=2, form="json", stream=stream), lambda: now_s)
    pod = PodDecoder().decode(json.dumps(build.pod("p")).encode())
    for after_s, result, times in steps:
        now_s += after_s
        attempt = Attempted(pod, result, 0.0, 1, 0.0, False, 1, 1, "why")  # type: ignore[arg-type]  # one of three
        for _ in range(times):
            log.write(attempt)
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_failures_beyond_the_rate_are_counted_with_the_next_line() -> None:
    lines = lines_of([(0.0, "unschedulable", 5000), (1.0, "error", 30)])
    assert len(lines) == 2000 + 1 + 20
    assert lines[2000] == {**lines[2000], "msg": "Failed attempts were not logged: too many", "n": 3000}
    assert lines[-1]["msg"] == "Error scheduling pod; retrying"


def test_every_success_is_logged() -> None:
    assert len(lines_of([(0.0, "scheduled", 3000)])) == 3000
