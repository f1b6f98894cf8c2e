"""Quantities: upstream's grammar, exact amounts, rounding and clamps."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.engine.syntax.quantity import (
    MAX_TEXT,
    MOST_COUNTED,
    ZERO,
    QuantityError,
    counted,
    parse_quantity,
)
from tests.reference import quantity as reference

INT64_MAX = 2**63 - 1
SUFFIXES = (
    *("", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"),
    *("e3", "E-4", "e+2", "e-12"),
)


@pytest.mark.parametrize(
    ("text", "nano", "value", "milli"),
    [
        pytest.param("0.00000012345", 124, 1, 1, id="finer than nano rounds away from zero"),
        pytest.param("0.000000000001Ki", 2, 1, 1, id="tiny binary amount rounds away from zero"),
        pytest.param("9Ei", INT64_MAX * 10**9, INT64_MAX, INT64_MAX, id="binary amount capped"),
        pytest.param("9223372036854775807Ki", INT64_MAX * 10**9, INT64_MAX, INT64_MAX, id="long amount capped"),
        pytest.param("12E", 12 * 10**27, INT64_MAX, INT64_MAX, id="clamped"),
        pytest.param("1E", 10**27, 10**18, INT64_MAX, id="E alone is exa"),
        pytest.param("1E3", 10**12, 1000, 10**6, id="E with digits is an exponent"),
        pytest.param("1e03", 10**12, 1000, 10**6, id="leading zero in the exponent"),
        pytest.param("-1.5", -1_500_000_000, -2, -1500, id="negative rounds away from zero"),
        pytest.param("-9Ei", -INT64_MAX * 10**9, -INT64_MAX, -(2**63), id="negative binary amount capped"),
        pytest.param(" 5\n", 5 * 10**9, 5, 5000, id="surrounding blanks"),
        pytest.param("0", 0, 0, 0, id="zero"),
        pytest.param("+", 0, 0, 0, id="sign alone is 0"),
        pytest.param("-", 0, 0, 0, id="minus alone is 0"),
        pytest.param(".", 0, 0, 0, id="dot alone is 0"),
        pytest.param("m", 0, 0, 0, id="suffix alone is 0"),
        pytest.param("Ti", 0, 0, 0, id="small binary suffix alone is 0"),
        pytest.param("12345" * 3 + "6789", 1234512345123456789 * 10**9, 1234512345123456789,
                     INT64_MAX, id="19 digits: milli is clamped"),
        pytest.param("12345" * 3 + "678", 123451234512345678 * 10**9, 123451234512345678,
                     INT64_MAX, id="18 digits: milli is clamped"),
        pytest.param("18446744073709551617", (2**64 + 1) * 10**9, INT64_MAX, INT64_MAX, id="2^64 + 1"),
        pytest.param(2, 2 * 10**9, 2, 2000, id="JSON integer"),
        pytest.param(0.1, 10**8, 1, 100, id="JSON number by its decimal text"),
        pytest.param(1e16, 10**25, 10**16, INT64_MAX, id="JSON number with an exponent"),
        pytest.param(2.5e-10, 1, 1, 1, id="tiny JSON number"),
    ],
)  # fmt: skip
def test_a_quantity_has_upstreams_exact_amount_value_and_milli_value(text, nano, value, milli):
    quantity, exact = parse_quantity(text), reference.parse(text)
    assert quantity.nano == exact * 10**9 == nano
    assert quantity.value() == reference.whole_units(exact) == value
    assert quantity.milli_value() == reference.whole_milli(exact) == milli


@pytest.mark.parametrize(
    ("text", "nano"),
    [
        pytest.param("0e-2000000000", 0, id="zero however small its exponent"),
        pytest.param("1e4294967296", 10**9, id="narrowed to 32 bits"),
        pytest.param("1e-2000000000", 1, id="vanishing amount is one nano"),
    ],
)
def test_an_exponent_has_32_bits(text, nano):
    assert parse_quantity(text).nano == nano


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("  ", id="blanks"),
        pytest.param("1e", id="exponent without digits"),
        pytest.param("1K", id="upper-case kilo"),
        pytest.param("1ki", id="lower-case kibi"),
        pytest.param("1MI", id="upper-case mebi"),
        pytest.param("1 Gi", id="blank inside"),
        pytest.param("1..5", id="two dots"),
        pytest.param("1.5.2", id="two fractions"),
        pytest.param("--1", id="two signs"),
        pytest.param("5-3", id="sign inside"),
        pytest.param("1m5", id="digits behind a suffix"),
        pytest.param("1e5.5", id="fractional exponent"),
        pytest.param("1e9223372036854775808", id="exponent beyond 64 bits"),
        pytest.param("0x10", id="hexadecimal"),
        pytest.param("1_000", id="underscore"),
        pytest.param("١", id="digits of another script"),
        pytest.param("Ei", id="large suffix without digits"),
        pytest.param("1\n2", id="two lines"),
        pytest.param("\x1c1", id="a separator that is no blank"),
        pytest.param(float("nan"), id="not a number"),
        pytest.param(float("inf"), id="infinity"),
        pytest.param(True, id="boolean"),
        pytest.param("9" * (MAX_TEXT + 1), id="too long"),
        pytest.param(1 << 20_000, id="too long a JSON number"),
    ],
)
def test_what_is_no_quantity_is_refused_in_one_short_line(text):
    with pytest.raises(QuantityError) as refused:
        parse_quantity(text)
    assert len(str(refused.value).splitlines()) == 1
    assert len(str(refused.value)) < 300


def test_a_refusal_names_the_text():
    with pytest.raises(QuantityError, match=re.escape("'12 apples' is not a quantity")):
        parse_quantity("12 apples")


@pytest.mark.parametrize(
    "text", ["9" * MAX_TEXT, "1e2000000000", f".{'0' * 900}1e-2147483648", "0" * 1000 + "1Ei"]
)
def test_absurd_amounts_cost_little(text):
    """Numbers stay within a few thousand digits whatever the exponent says."""
    quantity = parse_quantity(text)
    assert (quantity + quantity).nano.bit_length() < 10_000


@pytest.mark.parametrize("text", ["1" * 1000 + "x", "0" * 1000 + "x", "1." + "0" * 1000 + "x", "E" * 1000])
def test_hostile_texts_are_refused_at_once(text):
    with pytest.raises(QuantityError):
        parse_quantity(text)


@pytest.mark.parametrize(("resource", "units"), [("cpu", 1500), ("memory", 2)])
def test_cpu_is_counted_in_thousandths_and_all_up_to_a_bound(resource, units):
    assert counted(resource, parse_quantity("1.5")) == units
    assert counted(resource, parse_quantity("9Ei")) == MOST_COUNTED


def test_equal_amounts_are_equal_and_ordered_by_amount_whatever_their_writing():
    assert parse_quantity("1000m") == parse_quantity("1") == parse_quantity("1e0")
    assert hash(parse_quantity("1000m")) == hash(parse_quantity("1"))
    assert parse_quantity("1Ki") > parse_quantity("1k") > parse_quantity("999999m") > ZERO
    assert max(parse_quantity("200m"), parse_quantity("0.3")) == parse_quantity("300m")


numbers = st.from_regex(r"[+-]?([0-9]{1,25}(\.[0-9]{0,15})?|\.[0-9]{1,15})", fullmatch=True)


@given(numbers, st.sampled_from(SUFFIXES))
def test_amounts_are_the_reference_s(number, suffix):
    parsed, exact = parse_quantity(number + suffix), reference.parse(number + suffix)
    assert parsed.nano == exact * 10**9
    assert parsed.value() == reference.whole_units(exact)
    assert parsed.milli_value() == reference.whole_milli(exact)


@given(st.lists(st.tuples(numbers, st.sampled_from(SUFFIXES)), min_size=1, max_size=6))
def test_sums_are_exact_in_any_order(parts):
    quantities = [parse_quantity(number + suffix) for number, suffix in parts]
    forwards = sum(quantities, ZERO)
    assert forwards.nano == sum(q.nano for q in quantities)
    assert forwards == sum(reversed(quantities), ZERO)


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=1e-9, max_value=1e15))
def test_a_json_number_counts_as_its_decimal_text(number):
    assert parse_quantity(number) == parse_quantity(repr(number))
