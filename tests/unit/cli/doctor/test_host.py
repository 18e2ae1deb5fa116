"""Specification of what the doctor says of host evidence: only what is missing is trouble."""

from __future__ import annotations

import pytest

from gpumon.cli.doctor.machine import host_finding
from gpumon.sources.host.visibility import HostVisibility

NEXT_TO_NONE = HostVisibility(
    names_sleep=False, names_children=False, counts_memory_stalls=False, shows_others=False
)


class TestHostEvidence:
    def test_is_well_where_all_is_shown(self) -> None:
        found = host_finding(HostVisibility(), others_train=True)

        assert (found.name, found.status, found.fix) == ("host evidence", "ok", None)

    @pytest.mark.parametrize("lacking", HostVisibility._fields[:5])
    def test_is_missing_with_what_fixes_it(self, lacking: str) -> None:
        found = host_finding(HostVisibility()._replace(**{lacking: False}), others_train=False)

        assert found.status == "missing"
        assert found.fix

    @pytest.mark.parametrize(("others_train", "status"), [(False, "ok"), (True, "missing")])
    def test_of_other_users_is_missing_only_where_one_trains(
        self, others_train: bool, status: str
    ) -> None:
        found = host_finding(HostVisibility(opens_others=False), others_train=others_train)

        assert found.status == status

    @pytest.mark.parametrize(
        ("sight", "reasons"),
        [
            (HostVisibility(names_sleep=False), {"network_bound", "latency_bound"}),
            (HostVisibility(counts_memory_stalls=False), {"memory_pressure", "disk_bound"}),
        ],
    )
    def test_names_the_reasons_that_it_costs(
        self, sight: HostVisibility, reasons: set[str]
    ) -> None:
        reported = host_finding(sight, others_train=False).detail

        assert {word.strip(":,;") for word in reported.split() if "_" in word} == reasons

    def test_shows_each_trouble_and_each_remedy(self) -> None:
        found = host_finding(NEXT_TO_NONE, others_train=False)

        assert len(found.detail.split("; ")) == 4
        assert str(found.fix).count("CONFIG_") == 2
