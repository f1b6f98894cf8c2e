"""The grammar of names, and upstream's sentences for what does not follow it."""

import pytest

from scheduler.engine.syntax.names import (
    dns_label_faults,
    label_key_faults,
    label_value_faults,
    subdomain_faults,
)

NAME_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', "
    "regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', "
    "regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
PREFIX_RULE = (
    "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        pytest.param("app", None, id="plain"),
        pytest.param("A_b-c.1", None, id="all characters"),
        pytest.param("topology.kubernetes.io/zone", None, id="prefixed"),
        pytest.param("x" * 63, None, id="longest name"),
        pytest.param("x" * 64, "name part must be no more than 63 bytes", id="name too long"),
        pytest.param(f"{'p' * 253}/x", None, id="longest prefix"),
        pytest.param(
            f"{'p' * 254}/x", "prefix part must be no more than 253 bytes", id="prefix too long"
        ),
        pytest.param("", f"name part must be non-empty; name part {NAME_RULE}", id="empty"),
        pytest.param("/x", "prefix part must be non-empty", id="empty prefix"),
        pytest.param("p/", f"name part must be non-empty; name part {NAME_RULE}", id="empty name"),
        pytest.param("Bad.Prefix/x", PREFIX_RULE, id="upper-case prefix"),
        pytest.param("bad key/!", f"{PREFIX_RULE}; name part {NAME_RULE}", id="both parts bad"),
        pytest.param("app\n", f"name part {NAME_RULE}", id="trailing line break"),
        pytest.param(
            "a/b/c",
            f"a valid label key {NAME_RULE} with an optional DNS subdomain prefix and '/' "
            "(e.g. 'example.com/MyName')",
            id="two slashes",
        ),
    ],
)  # fmt: skip
def test_a_label_key_is_refused_in_upstreams_words(name, problem):
    assert "; ".join(label_key_faults(name)) == (problem or "")


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        pytest.param("", None, id="empty"),
        pytest.param("v1.2_3-x", None, id="all characters"),
        pytest.param("v" * 63, None, id="longest"),
        pytest.param("v" * 64, "must be no more than 63 bytes", id="too long"),
        pytest.param(".v", VALUE_RULE, id="starts with a dot"),
        pytest.param("é" * 32, f"must be no more than 63 bytes; {VALUE_RULE}", id="length is in bytes"),
        pytest.param("v\n", VALUE_RULE, id="trailing line break"),
    ],
)
def test_a_label_value_is_refused_in_upstreams_words(value, problem):
    assert "; ".join(label_value_faults(value)) == (problem or "")


@pytest.mark.parametrize(
    ("name", "n_faults"),
    [
        pytest.param("my-name", 0, id="plain"),
        pytest.param("n" * 63, 0, id="longest"),
        pytest.param("my.name", 1, id="a dot"),
        pytest.param("-" * 64, 2, id="too long and bad characters"),
    ],
)
def test_a_dns_label_has_neither_dots_nor_upper_case(name, n_faults):
    assert len(dns_label_faults(name)) == n_faults


def test_the_length_of_a_name_is_told_in_characters():
    """That of labels in bytes: upstream has two texts."""
    assert dns_label_faults("n" * 64) == ["must be no more than 63 characters"]
    assert subdomain_faults("n" * 254) == ["must be no more than 253 characters"]


def test_a_subdomain_may_have_dots():
    assert subdomain_faults("a.b-c.d") == []
    assert subdomain_faults("a..b") == [PREFIX_RULE.removeprefix("prefix part ")]
