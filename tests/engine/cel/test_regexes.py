"""Regular expressions against Python's, where both have the same meaning."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.engine.cel.plans import MAX_STEPS, Frame
from scheduler.engine.cel.regexes import Regex, RegexError

ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "(?:ab)", r"\w", r"\d", r"\b", "^", "(?i:A)", "(b|)"])
QUANTIFIERS = st.sampled_from(["", "", "", "?", "??", "{1,2}", "{2}", "+", "+?"])
# Without repeated empty matches, in which Go and Python differ: only atoms that read a character are repeated.
READING = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "(?:ab)", r"\w"])
PARTS = st.one_of(ATOMS, st.tuples(READING, QUANTIFIERS).map("".join))
PATTERNS = st.lists(PARTS, min_size=1, max_size=5).map("".join)
TEXTS = st.text(alphabet="abA1 \n", max_size=12)


def meter() -> Frame:
    return Frame(None, 0, MAX_STEPS)


@given(st.lists(PATTERNS, min_size=1, max_size=3).map("|".join), TEXTS)
@settings(deadline=None, max_examples=200)
def test_matches_are_those_of_python(pattern, text):
    ours, theirs = Regex(pattern), re.compile(pattern, re.ASCII)
    assert ours.matches(text, meter()) is (theirs.search(text) is not None)
    first = theirs.search(text)
    assert ours.find_all(text, meter(), 1) == ([first[0]] if first else [])


@pytest.mark.parametrize(
    "pattern",
    ["(", ")", "[", "a**", "*", "+a", "a{2,1}", "a{1001}", "(?=a)", "(?!a)", "(?<=a)", r"\1", r"\Z", "a++", "(?P=a)",
     "[b-a]", "[[:nope:]]", "(?z)", "\\", "(?:a{100}){100}", r"\C", r"a\\\C"],
)  # fmt: skip
def test_what_re2_does_not_have_is_no_regular_expression(pattern):
    with pytest.raises(RegexError):
        Regex(pattern)


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("a$", "a\n", []),
        ("(?m)a$", "a\nb", ["a"]),
        (r"\s", "\v", []),
        ("(?U)a+", "aa", ["a", "a"]),
        (r"[[:alpha:]-]+", "a-b1", ["a-b"]),
        (r"\pL+", "äß1", ["äß"]),
        (r"(?i)straße", "STRAßE", ["STRAßE"]),
        (r"\x{1F600}", "😀", ["😀"]),
        (r"\Qa.b\E", "a.b", ["a.b"]),
        ("a|ab", "ab", ["a"]),
        ("x*", "axa", ["", "x", ""]),
        ("x*", "äöx", ["", "", "x"]),
        (r"\p{Greek}", "aβc", ["β"]),
        (r"\\C", r"\C", [r"\C"]),
        (".", "\ud800", ["?"]),
    ],
)
def test_meaning_where_python_differs(pattern, text, found):
    assert Regex(pattern).find_all(text, meter()) == found


@pytest.mark.parametrize("pattern", [r"\pL{1000}", "(?:x{0,1000})" * 100])
def test_what_would_take_long_to_compile_is_refused_in_words(pattern):
    with pytest.raises(RegexError, match="more than 1 MiB is not supported"):
        Regex(pattern)
