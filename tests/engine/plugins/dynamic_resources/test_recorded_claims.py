"""The allocator decides as the recordings of Kubernetes 1.36 do, but for two defects that it does not have."""

from __future__ import annotations

from tests.engine.plugins.dynamic_resources.recorded_claims import lines, mismatches


def test_claims_get_the_recorded_devices() -> None:
    """Every node gives every claim the recorded devices, or the recorded refusal; other lines have a known defect."""
    found = {
        (line["name"], mismatch) for line in lines() if not line.get("quirk") for mismatch in mismatches(line)
    }
    assert found == set()


def test_each_line_with_a_defect_is_decided_otherwise() -> None:
    """A line that is marked for a defect of upstream shows it: without the defect a decision is another one."""
    same = [line["name"] for line in lines() if line.get("quirk") and not list(mismatches(line))]
    assert same == []
