"""Specification of a report on GPUs that are under-filled or cut by MIG, in words and as JSON.

Its words are in ``tests/golden``.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.core.codecs.report_codec import decode_report, encode_report
from gpumon.core.device.fill import GpuFill
from gpumon.core.report.report import GpuReport
from gpumon.outlets.text.headline import verdict_line
from tests.builders.report import MIG_PARENT, filled, gpm_fill, gpu, mig_part, power_fill, report
from tests.unit.core.device.test_troubles import LOST
from tests.unit.outlets.report_lines import shown

FULL, EMPTY = filled(gpm_fill(0.9)), filled(gpm_fill(0.24))


class TestAnUnderFilledGpu:
    @pytest.mark.parametrize(
        "one",
        [FULL, filled(gpm_fill(0.24, seconds=12.0)), filled(gpm_fill(0.24, held=0.8))],
        ids=["one that is full", "one that was watched too shortly", "a throttled one"],
    )
    def test_is_not(self, one: GpuReport) -> None:
        assert report(one).advice == ()
        assert "under-filled" not in verdict_line(report(one))


class TestTheDocument:
    def test_tells_ratios_and_what_they_rest_on(self) -> None:
        (told,) = encode_report(report(EMPTY))["gpus"]

        assert told["fill"]["evidence"] == "gpm"
        assert told["fill"]["observed_seconds"] == 120.0
        assert told["fill"]["sm_active_ratio"] == 0.24
        assert told["fill"]["under_filled"] is True
        assert told["fill"]["held_down"] is False
        assert told["verdict"] == "healthy"

    def test_has_nothing_but_nulls_where_nothing_is_known(self) -> None:
        (told,) = encode_report(report(filled(None)))["gpus"]

        assert told["fill"]["evidence"] is None
        assert told["fill"]["sm_active_ratio"] is None
        assert told["fill"]["power_ratio"] is None
        assert told["fill"]["under_filled"] is False

    @pytest.mark.parametrize(
        "fill", [None, gpm_fill(0.24), power_fill(180.0), gpm_fill(0.24, held=0.7)]
    )
    def test_reads_back_to_the_same_words(self, fill: GpuFill | None) -> None:
        one = report(filled(fill), MIG_PARENT, mig_part(0, 80.0, 20.0))

        assert shown(decode_report(encode_report(one))) == shown(one)

    def test_of_an_older_daemon_is_read_too(self) -> None:
        document = encode_report(report(filled(None)))
        for name in ("fill", "label", "mig_enabled", "parent_uuid", "mig_index"):
            del document["gpus"][0][name]

        assert decode_report(document).gpus[0].fill is None

    def test_tells_who_is_part_of_whom(self) -> None:
        parent, first = encode_report(report(MIG_PARENT, mig_part(1, 80.0)))["gpus"]

        assert (parent["label"], parent["mig_enabled"]) == ("0", True)
        assert (first["label"], first["parent_uuid"], first["index"]) == ("0:1", "GPU-a", 0)

    def test_claims_no_coverage_of_what_does_not_tell(self) -> None:
        gpus = report(MIG_PARENT, mig_part(0), mig_part(1, 80.0))

        assert [one["coverage_ratio"] for one in encode_report(gpus)["gpus"]] == [0.0, 0.0, 1.0]


class TestAGpuCutByMig:
    def test_offers_no_work_to_an_instance_that_is_no_longer_there(self) -> None:
        gone = [replace(mig_part(0, 97.0), listed=False), replace(mig_part(1, 5.0), listed=False)]
        one = report(MIG_PARENT, *gone)

        assert one.advice == ()
        assert [gpu.listed for gpu in decode_report(encode_report(one)).gpus] == [
            True, False, False,
        ]  # fmt: skip

    def test_that_is_lost_is_a_lost_gpu(self) -> None:
        assert replace(MIG_PARENT, error=LOST).is_lost
        assert not gpu(97).is_lost
