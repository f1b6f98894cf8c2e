"""Every target stands mutants of the corpus; `python -m tests.proof.fuzz` goes on where this ends."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.proof.fuzz.__main__ import MAX_BYTES, NAMES
from tests.proof.fuzz.corpus import seeds_of
from tests.proof.fuzz.targets import PROPERTIES, TARGETS

_ODD = (
    b"", b"null", b"true", b"-1", b"0", b"1e999", b"9" * 40, b'""', b"{}", b"[]", b"[" * 300, b"{" * 300, b"\xff",
    b"\x00", b"\n", b"\\ud800", b"&a", b"*a", b"<<: *a", b"\xc2\x85", "\u0661".encode(), b"!!python/object:a",
    b"---\n", b"%",
)  # fmt: skip
_WORD = re.compile(rb"[\w./-]+|\s+|[^\w\s]")


@st.composite
def mutants(draw: st.DrawFn, seeds: list[list[bytes]]) -> bytes:
    """Return a seed with some words replaced by words of a seed, odd ones or any bytes."""
    words = list(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(0, 4))):
        at, n = draw(st.integers(0, len(words))), draw(st.sampled_from((0, 1, 2, 10)))
        other = draw(st.sampled_from(seeds))
        new = draw(st.sampled_from(_ODD) | st.sampled_from(other) | st.binary(max_size=4))
        words[at : at + n] = [new]
    return b"".join(words)[:MAX_BYTES]


@pytest.mark.parametrize("name", sorted(TARGETS.keys() - PROPERTIES.keys()))
def test_a_target_stands_mutants_of_its_seeds(name: str) -> None:
    @settings(max_examples=60)
    @given(mutants([_WORD.findall(each) for each in seeds_of(name)]))
    def stands(data: bytes) -> None:
        TARGETS[name](data)

    stands()


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_property_takes_a_seed_as_an_example(name: str) -> None:
    """The properties are tried where they stand."""
    assert any(PROPERTIES[name](data) is not None for data in seeds_of(name))


def test_every_target_has_a_name() -> None:
    assert tuple(TARGETS) == NAMES
