"""What terminals, files, broken pipes and full disks get; lines that are replaced on a real terminal of the kernel."""

from __future__ import annotations

import fcntl
import io
import os
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import pytest
from msgspec.structs import replace
from syrupy.assertion import SnapshotAssertion

from scheduler.cli.query.shadow_report import live_lines, text
from scheduler.engine.core.decision_annotation import DecisionRecord, RankedNode
from scheduler.tools.explain.formats.explanation import Explanation, NodeGroup
from scheduler.tools.explain.formats.table import table_lines
from scheduler.tools.explain.formats.terminal import LiveLines, Style
from scheduler.tools.explain.report import report_lines
from scheduler.tools.shadow.report import Cause, Difference, ShadowReport
from tests.cli.conftest import recorded
from tests.support import build

TERM = {"TERM": "xterm"}
#: No program writes it.
_END = "\0"


class Terminal:
    """One end of a terminal is `out`; `shown` is what has been written there."""

    def __init__(self, out: TextIO, other_end: int) -> None:
        self.out, self._other_end = out, other_end

    def resize(self, columns: int, n_lines: int) -> None:
        fcntl.ioctl(self._other_end, termios.TIOCSWINSZ, struct.pack("HHHH", n_lines, columns, 0, 0))

    def shown(self) -> str:
        """Return what has come since the last call. The kernel may hand it over in parts."""
        self.out.write(_END)
        self.out.flush()
        found = ""
        while not found.endswith(_END):
            found += os.read(self._other_end, 65_536).decode()
        return found.removesuffix(_END).replace("\r\n", "\n")


@contextmanager
def terminal(columns: int, n_lines: int) -> Iterator[Terminal]:
    other_end, end = os.openpty()
    try:
        with open(end, "w", encoding="utf-8") as out:  # noqa: PTH123 - of a file descriptor
            made = Terminal(out, other_end)
            made.resize(columns, n_lines)
            yield made
    finally:
        os.close(other_end)


def block(*lines: str) -> str:
    return "\x1b[?7l" + "".join(f"{line}\n" for line in lines) + "\x1b[?7h"


def test_lines_replace_the_last_ones_and_a_log_stays_above() -> None:
    with terminal(20, 10) as screen:
        live = LiveLines(screen.out, TERM)
        live.show(lambda columns: [f"{columns} columns", "x" * 30, "a\x1bb"])
        assert screen.shown() == block("19 columns", "x" * 18 + "…", "a\\x1bb")
        live.write("a log line\n")
        assert screen.shown() == "\x1b[3F\x1b[Ja log line\n" + block("19 columns", "x" * 18 + "…", "a\\x1bb")
        live.show(lambda _: ["less"])
        assert screen.shown() == "\x1b[3F\x1b[J" + block("less")
        live.clear()
        live.write("the last\n")
        live.clear()
        assert screen.shown() == "\x1b[1F\x1b[Jthe last\n"


def test_a_terminal_that_became_smaller_loses_the_lines_that_it_broke() -> None:
    """Five lines of 19 columns are ten on a terminal of ten columns, of which three are shown next."""
    with terminal(20, 10) as screen:
        live = LiveLines(screen.out, TERM)
        live.show(lambda _: ["x" * 19] * 5)
        screen.shown()
        screen.resize(10, 4)
        live.show(lambda _: ["y"] * 4)
        assert screen.shown() == "\x1b[10F\x1b[J" + block("y", "y", "... and …")


def test_a_terminal_without_a_size_counts_as_a_usual_one() -> None:
    with terminal(0, 0) as screen:
        LiveLines(screen.out, TERM).show(lambda columns: [str(columns)] * 30)
        assert screen.shown() == block(*["79"] * 22, "... and 8 more lines")


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


STREAMS = {
    "a terminal": (_Terminal(), TERM, True, True),
    "NO_COLOR": (_Terminal(), {**TERM, "NO_COLOR": "1"}, False, True),
    "a dumb terminal": (_Terminal(), {"TERM": "dumb"}, False, False),
    "a file": (io.StringIO(), TERM, False, False),
}


@pytest.mark.parametrize(("out", "environ", "coloured", "progress"), STREAMS.values(), ids=STREAMS)
def test_only_terminals_get_colours_and_progress(
    out: io.StringIO, environ: dict[str, str], coloured: bool, progress: bool
) -> None:
    """NO_COLOR removes the colours, but not the progress line. What is no terminal gets the log alone."""
    assert ("\x1b" in Style(out, environ).bad("x")) == coloured
    live = LiveLines(out, environ)
    live.say("shop/\x1b[31mp: trying change 1 of 2")
    live.show(lambda _: ["lines"])
    live.write("a log line\n")
    live.clear()
    shown = out.getvalue()
    assert ("shop/\\x1b[31mp: trying change 1 of 2" in shown) == progress
    assert progress or shown == "a log line\n"


@pytest.mark.parametrize("n_bytes", [0, 100_000])
def test_a_broken_pipe_ends_the_command_quietly(n_bytes: int, tmp_path: Path) -> None:
    """While it prints or at its end: no traceback, and the exit code of SIGPIPE."""
    on = recorded(tmp_path, build.pod("p", spec={"schedulerName": "s" * n_bytes}))
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, "-m", "scheduler", "explain", "p", "--on", on]
    ended = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, check=False)
    os.close(write_end)
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_an_answer_for_which_there_is_no_room_is_one_line(tmp_path: Path) -> None:
    config = tmp_path / "scheduler.yaml"
    config.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n")
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "scheduler", "check-config", str(config)]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert ended.stderr.startswith("standard output: found no space left on its device")


def test_control_characters_in_annotations_are_escaped() -> None:
    """In sentences and in every table."""
    evil = "\x1b[31mred\x07\u202e"
    record = DecisionRecord(1, 1, 1, (RankedNode(evil, 1, {evil: 1}),), {evil: 1})
    group = NodeGroup(evil, evil, evil, 1, (evil,), removable=False)
    answer = Explanation(
        namespace=evil, pod=evil, scheduler_name=evil, profile="p", state="bound", message=evil, n_nodes=1,
        groups=(group,), scores=record.top, recorded=record, notes=(evil,),
    )  # fmt: skip
    lines = report_lines(answer, Style(io.StringIO(), {}, is_wide=True))
    assert all(line.isprintable() for line in lines)
    assert sum(line.count("\\x1b[31mred\\x07\\u202e") for line in lines) >= 10


POD = "web-7d4b9c8f6d-x2x7z"
REPORT = ShadowReport(
    scheduler="default-scheduler",
    n_bound=12_408,
    n_alike=12_391,
    n_tied=3,
    n_pending=1,
    n_same_reasons=1,
    n_unseen=0,
    causes={Cause.SCORE: 17},
    differences=(
        Difference(
            namespace="shop", pod=POD, cause=Cause.SCORE, node="node-1", here="node-2", behind=5,
            plugin="InterPodAffinity", explanation="node-2 has 5 points more; InterPodAffinity alone gives it 7 more",
        ),
    ),
    n_more_differences=0,
    schedulers_seen=("default-scheduler",),
)  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "head"),
    [
        (159, ["POD", "CAUSE", "THERE", "HERE", "BEHIND", "BY", "WHY"]),
        (99, ["POD", "CAUSE", "THERE", "HERE", "WHY"]),
        (79, ["POD", "CAUSE", "WHY"]),
        (20, ["POD", "CAUSE", "WHY"]),
    ],
)
def test_a_narrow_terminal_gets_fewer_columns_and_broken_sentences(columns: int, head: list[str]) -> None:
    *sentences, cause, empty, names, row = live_lines(REPORT, columns)
    assert names.split() == head
    assert row.split()[:2] == [f"shop/{POD}", "score"]
    assert (cause, empty) == ("  17 score: another node has more points", "")
    assert max(map(len, sentences)) <= columns
    assert " ".join(line.strip() for line in sentences) == (
        "12,408 pods bound by default-scheduler: 12,391 as we would (3 among equals), 17 otherwise "
        "1 time a pod left pending: 1 for the reasons that we see, 0 for others"
    )


def test_sentences_are_broken_between_words_and_tables_are_not() -> None:
    """Broken within words, names cannot be read or copied. Later parts are indented, as the next sentence is not."""
    text = "\n".join(
        (
            "  a table's row  with columns  that are too long",
            "  a pod leaves the node node-0001  -> node-0004",
            "  short",
        )
    )
    with terminal(30, 10) as screen:
        assert Style(screen.out, TERM).wrapped(text).split("\n") == [
            "  a table's row  with columns  that are too long",
            "  a pod leaves the node",
            "      node-0001  -> node-0004",
            "  short",
        ]
        assert Style(screen.out, {"TERM": "dumb"}).wrapped(text) == text
        style = Style(screen.out, TERM)
        headline = style.heading("29 columns, " + style.bad("coloured in part"))
        assert style.wrapped(headline) == headline
        # The code of the colour and the indentation are no column of a table.
        note = style.wrapped(style.faint("  note: two words more than fit")).split("\n")
        assert note == ["\x1b[2m  note: two words more", "      than fit\x1b[0m"]
    assert Style(io.StringIO(), TERM).wrapped(text) == text


def test_a_progress_line_is_one_line() -> None:
    """It is cut where the terminal would break it, and goes without a trace."""
    with terminal(20, 10) as screen:
        live = LiveLines(screen.out, TERM)
        live.say("default/a-long-name: trying change 1 of 12")
        assert screen.shown() == block("default/a-long-nam…")
        live.say("")
        assert screen.shown() == "\x1b[1F\x1b[J"


def test_a_table_fits_into_the_terminal(snapshot: SnapshotAssertion) -> None:
    """The widest column is broken between words, never within a name; a column without room is a line below its row."""
    rows = [
        (3, "node(s) didn't match pod anti-affinity rules", "node-0001, ..."),
        (12, "Insufficient cpu", ""),
    ]
    with terminal(40, 10) as screen:
        columns = Style(screen.out, TERM).columns
    tables = [table_lines(("NODES", "REASON", "SUCH AS"), rows, columns=each) for each in (columns, 60)]
    # A head without a word is no line.
    scores = [("NodeResourcesBalancedAllocation", 74, 75)]
    tables.append(table_lines(("", "node-0001", "node-0002"), scores, columns=40))
    # Where it is piped, a long cell does not widen the other rows; nothing is broken there: a row is a line.
    cells = [("a", "x" * 200, "1"), ("b", "short", "2")]
    tables.append(table_lines(("NAME", "WHERE", "SUCH AS"), cells))
    assert "\n\n".join("\n".join(table) for table in tables) == snapshot
    assert [len(table) for table in tables] == [5, 4, 3, 3]


LABEL = "topology.kubernetes.io/zone=zone-a"


@pytest.mark.parametrize("columns", [30, 39, 60, 79, 119])
def test_a_name_in_a_table_is_whole_at_every_width(columns: int) -> None:
    """It is copied. Only a name that is wider than the terminal goes beyond it."""
    rows = [
        (2, "InterPodAffinity", "node(s) didn't match pod anti-affinity rules", LABEL, "node-0001, node-0004")
    ]
    lines = table_lines(("NODES", "BY", "REASON", "WHERE", "SUCH AS"), rows, columns=columns)
    words = " ".join(lines).split()
    assert {LABEL, "InterPodAffinity", "anti-affinity", "node-0001,", "node-0004"} <= set(words)
    with terminal(columns + 1, 10) as screen:
        assert Style(screen.out, TERM).wrapped("\n".join(lines)).split("\n") == lines
    assert all(len(line) <= columns for line in lines if LABEL not in line)


def test_a_report_of_shadow_is_red_where_nothing_explains_a_difference() -> None:
    for cause, colour in ((Cause.SCORE, "31;1"), (Cause.RACE, "2")):
        differences = (replace(REPORT.differences[0], cause=cause),)
        report = replace(REPORT, causes={cause: 1}, differences=differences)
        with terminal(80, 40) as screen:
            lines = text(report, Style(screen.out, TERM))
        assert next(line for line in lines if f"1 {cause}:" in line).startswith(f"\x1b[{colour}m")
        assert ("31;1" in lines[0]) == (cause is Cause.SCORE)
        assert lines[-2].split() == ["\x1b[1m", "POD", "CAUSE", "WHY\x1b[0m"]
        assert not any("\x1b" in line for line in text(report, Style(io.StringIO(), TERM)))
