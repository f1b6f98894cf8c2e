"""What a person sees of the demo, with and without a terminal."""

from __future__ import annotations

import io

import pytest
from syrupy.assertion import SnapshotAssertion

from scheduler.sandbox.demo.display import Display, Scene, columns

SCENES = [
    Scene("stuck", {"zone-a": "[B] [ ]", "zone-b": "[B]"}, "GG"),
    Scene("fixed", {"zone-a": "[G] [ ]", "zone-b": "[G]"}),
]
MEANINGS = {"B": "blue", "G": "green"}
TERMINAL = {"TERM": "xterm"}


class Screen(io.StringIO):
    """A terminal that remembers."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_columns_are_aligned(snapshot: SnapshotAssertion) -> None:
    """Numbers to the right; a dash is no number, and dashes alone are text. A map's pods without a node come last."""
    tables = [
        columns(("A", "N"), [("x", "5"), ("y", "1,000")]),
        columns(("N", "T"), [("5", "t"), ("-", "t")]),
        columns(("A", "PODS"), [("x", "-")]),
    ]
    out = io.StringIO()
    Display(out, TERMINAL).map(SCENES, MEANINGS)
    assert "\n".join(line for table in tables for line in (*table, "")) + out.getvalue() == snapshot


@pytest.mark.parametrize(
    ("out", "environ", "has_colour"),
    [
        pytest.param(Screen(), TERMINAL, True, id="a terminal"),
        pytest.param(Screen(), {**TERMINAL, "NO_COLOR": "1"}, False, id="a terminal without colours"),
        pytest.param(Screen(), {"TERM": "dumb"}, False, id="a terminal that can do nothing"),
        pytest.param(io.StringIO(), TERMINAL, False, id="a file or pipe"),
    ],
)
def test_control_codes_go_to_terminals_alone(
    out: io.StringIO, environ: dict[str, str], has_colour: bool
) -> None:
    """And where there is no terminal, a reason stands on one line."""
    show = Display(out, environ)
    show.title("Title", "About it.")
    show.command("kubectl get pods")
    show.quote(["a reason " * 20])
    show.good("well")
    show.map(SCENES, MEANINGS)
    text = out.getvalue()
    assert ("\x1b[32m" in text) == has_colour
    if not has_colour:
        assert all(character.isprintable() or character == "\n" for character in text)
    assert isinstance(out, Screen) or "a reason " * 19 in text


def test_a_letter_has_its_colour_in_every_line_of_a_map() -> None:
    out = Screen()
    Display(out, TERMINAL).map(SCENES, MEANINGS)
    assert out.getvalue().count("\x1b[32;1mG\x1b[0m") == 4
    assert out.getvalue().count("\x1b[34;1mB\x1b[0m") == 2


@pytest.mark.parametrize("n_columns", [40, 80, 120])
def test_no_line_is_wider_than_the_terminal_and_none_breaks_within_a_word(
    n_columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(n_columns))
    out = Screen()
    show = Display(out, {**TERMINAL, "NO_COLOR": "1"})
    command = "kubectl -n shop-stuck set image deployment/shop shop=registry.k8s.io/pause:3.10"
    show.command(command)
    lines = out.getvalue().splitlines()
    assert all(len(line) < n_columns for line in lines)
    assert all(line.endswith(" \\") for line in lines[:-1])
    assert " ".join(line.removesuffix("\\").strip() for line in lines) == f"$ {command}"


def test_a_quote_keeps_the_indentation_of_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    out = Screen()
    Display(out, {**TERMINAL, "NO_COLOR": "1"}).quote(["  RULES", "    a long line of many words"])
    assert out.getvalue().splitlines() == [
        "    │ RULES",
        "    │   a long line of many",
        "    │     words",
    ]
