"""Log lines: klog's form, one line per record, nothing above the verbosity."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scheduler.daemon.metrics.logs import MAX_VALUE_CHARS, JsonLines, Logger, TextLines, quoted

_HEAD = re.compile(r"([IWEC])\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ \S+\.py:\d+\] (.*)")


@dataclass
class Log:
    formatter: logging.Formatter
    verbosity: int = 0
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.stdlib = logging.Logger("test", logging.INFO - self.verbosity)
        handler = logging.Handler()
        handler.emit = lambda record: self.lines.append(self.formatter.format(record))  # type: ignore[method-assign] # a sink
        self.stdlib.addHandler(handler)
        self.logger = Logger(self.stdlib)


def _without_time(line: str) -> str:
    """Return the severity and the message of a line in klog's form."""
    found = _HEAD.fullmatch(line)
    assert found is not None, line
    return f"{found[1]} {found[2]}"


def _json(write: Callable[[Logger], None]) -> dict[str, object]:
    log = Log(JsonLines(), verbosity=10)
    write(log.logger)
    (line,) = log.lines
    assert "\n" not in line
    decoded: dict[str, object] = json.loads(line)
    return decoded


def test_text_lines_have_klogs_form() -> None:
    """Lists, sets and scalars as JSON; a long list is cut."""
    log = Log(TextLines(), verbosity=10)
    log.logger.info(2, "Successfully bound pod to node", pod="shop/web-1", node="n7", evaluatedNodes=5)
    log.logger.error("Error scheduling pod; retrying", pod="a/b", err=ValueError('bad "x"'))
    log.logger.info(0, "m", plugins=["A", "B"], zones={"z2", "z1"})
    log.logger.info(0, "m", yes=True, none=None, seconds=0.25)
    log.logger.info(0, "m", many=list(range(1000)))
    assert [_without_time(line) for line in log.lines] == [
        'I "Successfully bound pod to node" pod="shop/web-1" node="n7" evaluatedNodes=5',
        'E "Error scheduling pod; retrying" pod="a/b" err="bad \\"x\\""',
        'I "m" plugins=["A","B"] zones=["z1","z2"]',
        'I "m" yes=true none=null seconds=0.25',
        'I "m" many=[' + ",".join(map(str, range(99))) + ',"..."]',
    ]


def test_a_line_names_its_caller() -> None:
    log = Log(TextLines())
    log.logger.error("m")
    log.logger.info(0, "m")
    assert all(" test_logs.py:" in line for line in log.lines)


def test_a_json_line_has_the_keys_of_kubernetes_components() -> None:
    """`ts` in milliseconds; `v` for information only; then the pairs."""
    info = _json(lambda log: log.info(2, "Bound", pod="a/b", n=3, nodes=["x"]))
    assert {key: info[key] for key in ("level", "v", "msg", "pod", "n", "nodes")} == {
        "level": "info",
        "v": 2,
        "msg": "Bound",
        "pod": "a/b",
        "n": 3,
        "nodes": ["x"],
    }
    assert str(info["caller"]).startswith("test_logs.py:")
    assert isinstance(info["ts"], float)
    assert info["ts"] > 1.6e12
    error = _json(lambda log: log.error("Failed", err=OSError("gone"), seconds=float("inf")))
    assert (error["level"], error["err"], error["seconds"], "v" in error) == ("error", "gone", "inf", False)


def test_a_pair_cannot_replace_the_message() -> None:
    assert _json(lambda log: log.info(0, "real", msg="forged", level="error", ts=0))["msg"] == "real"


@settings(deadline=None)
@given(st.text())
@example('x"\nE1121 09:33:57.123456    4242 app.py:1] "forged" pod="a/b')
@example("\x1b[2J\x07\x85\u2028\u202e\ud800\x7f\\")
def test_any_value_is_written_on_one_printable_line(text: str) -> None:
    """Names and errors come from outside: they must not break or forge a line or control the terminal."""
    log = Log(TextLines())
    log.logger.info(0, "m", name=text, err=ValueError(text), list=[text])
    (line,) = map(_without_time, log.lines)
    assert line.isprintable()
    line.encode()
    assert _json(lambda log: log.info(0, "m", name=text))["name"] == text


@settings(deadline=None)
@given(st.text(max_size=200))
@example('\\n\n\r\t"')
def test_quoting_loses_nothing(text: str) -> None:
    """Different values are written differently, and Python reads the escapes back."""
    shown = quoted(text)
    escapes_read = re.sub(
        r"\\(x..|u....|U........|[nrt\"\\])",
        lambda found: found[0].encode().decode("unicode_escape"),
        shown[1:-1],
    )
    assert escapes_read == text


@pytest.mark.parametrize("formatter", [TextLines(), JsonLines()], ids=["text", "json"])
def test_a_long_value_is_cut(formatter: logging.Formatter) -> None:
    log = Log(formatter)
    log.logger.error("m", err="x" * 1_000_000)
    assert MAX_VALUE_CHARS < len(log.lines[0]) < MAX_VALUE_CHARS + 200
    assert "x..." in log.lines[0]


@pytest.mark.parametrize(
    ("verbosity", "shown"),
    [(0, ["e", "0"]), (2, ["e", "0", "1", "2"]), (10, ["e", "0", "1", "2", "3", "4", "5", "10"])],
)
def test_lines_above_the_verbosity_are_hidden_except_errors(verbosity: int, shown: list[str]) -> None:
    """As klog's -v."""
    log = Log(TextLines(), verbosity=verbosity)
    log.logger.error("e")
    for v in (0, 1, 2, 3, 4, 5, 10):
        log.logger.info(v, str(v))
        assert log.logger.shows(v) is (v <= verbosity)
    assert [line.rsplit("] ", 1)[1].strip('"') for line in log.lines] == shown


class _Expensive:
    def __str__(self) -> str:
        raise AssertionError("rendered although nobody reads it")


def test_a_hidden_line_renders_nothing() -> None:
    log = Log(TextLines(), verbosity=2)
    log.logger.info(3, "m", value=_Expensive())
    assert log.lines == []


@pytest.mark.parametrize("formatter", [TextLines(), JsonLines()], ids=["text", "json"])
def test_a_librarys_exception_is_one_line_with_its_trace(formatter: logging.Formatter) -> None:
    """For example asyncio's, about a task that raised."""
    log = Log(formatter)
    try:
        json.loads("first\nsecond")
    except ValueError:
        log.stdlib.exception("Task exception was never retrieved %s", "x")
    (line,) = log.lines
    assert "\n" not in line
    assert all(part in line for part in ("never retrieved x", "JSONDecodeError", "Traceback", "test_logs.py"))


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("text", ['"Started" version="1"', '"careful 1" logger="aiohttp"', "UserWarning"]),
        ("json", ['"msg": "Started"', '"logger": "aiohttp"', "UserWarning"]),
    ],
)
def test_the_whole_process_logs_in_one_form(form: str, expected: list[str]) -> None:
    """Our lines, libraries' warnings and Python's warnings on standard error; libraries' information is hidden."""
    program = f"""
import logging, warnings
from scheduler.daemon.metrics.logs import configure
log = configure(verbosity=2, form={form!r})
log.info(2, "Started", version="1")
log.info(3, "not shown")
logging.getLogger("aiohttp").info("not shown")
logging.getLogger("aiohttp").warning("careful %d", 1)
warnings.warn("odd")
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    lines = ran.stderr.splitlines()
    assert (ran.returncode, ran.stdout, len(lines)) == (0, "", 3)
    assert all(part in line for part, line in zip(expected, lines, strict=True))
