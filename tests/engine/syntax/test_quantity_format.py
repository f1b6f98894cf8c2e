"""Amounts are written as Kubernetes writes them."""

import pytest

from scheduler.engine.syntax.quantity_format import Format, binary, parse_formatted


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        pytest.param("0", "0", id="zero"),
        pytest.param("1024", "1024", id="decimal stays decimal"),
        pytest.param("1000", "1k", id="decimal suffix"),
        pytest.param("1024Ki", "1Mi", id="binary suffix"),
        pytest.param("1.5Gi", "1536Mi", id="broken binary number"),
        pytest.param("0.5Ki", "512", id="a small binary number is written in decimal"),
        pytest.param("100m", "100m", id="thousandths"),
        pytest.param("0.1", "100m", id="fraction"),
        pytest.param("1e3", "1e3", id="exponent"),
        pytest.param("12e1", "120", id="exponents are multiples of three"),
        *(
            pytest.param(f"1{end}", f"1{end}", id=end)
            for end in ("n", "u", "M", "G", "T", "P", "E", "Ki", "Ti", "Pi", "Ei")
        ),
        pytest.param("-2Gi", "-2Gi", id="negative"),
        pytest.param(2, "2", id="number"),
    ],
)
def test_an_amount_is_written_in_its_canonical_form(text: str | int, canonical: str) -> None:
    """The suffix is the largest that leaves a whole number, in the format in which the amount was given."""
    assert str(parse_formatted(text)) == canonical
    assert parse_formatted(canonical).nano == parse_formatted(text).nano


def test_a_rounded_amount_is_binary() -> None:
    assert str(binary(3 * 2**30)) == "3Gi"
    assert binary(5).format is Format.BINARY
    assert str(binary(5)) == "5"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        pytest.param("1Gi", "1Gi", True, id="equal"),
        pytest.param("1Gi", "1073741824", False, id="another format"),
        pytest.param("1Gi", "2Gi", False, id="another number"),
        pytest.param("1.5Gi", "1.5Gi", False, id="no compact number: Go compares pointers"),
    ],
)
def test_structs_are_the_same_as_in_go(one: str, other: str, *, same: bool) -> None:
    """Go's == on two quantities compares number and format, and pointers where the number is not compact."""
    assert parse_formatted(one).is_same_struct(parse_formatted(other)) is same
