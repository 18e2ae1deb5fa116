"""Specification of reports on GPUs with low SM utilisation, or partitioned by MIG, also as JSON."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from gpumon.core.codecs.report_codec import decode_report, encode_report
from gpumon.core.device.sm_utilisation import Mean
from gpumon.core.report.report import GpuReport
from gpumon.outlets.text.headline import verdict_line
from tests.builders.report import MIG_PARENT, filled, gpm_fill, mig_part, report
from tests.unit.outlets.report_lines import shown

LOW = filled(gpm_fill(0.24))


class TestLowSmUtilisation:
    @pytest.mark.parametrize(
        "one",
        [filled(gpm_fill(0.9)), filled(gpm_fill(0.24, seconds=12.0)),
         filled(gpm_fill(0.24, held=0.8))],
        ids=["one that is full", "one that was watched too briefly", "a throttled one"],
    )  # fmt: skip
    def test_is_not_that_of(self, one: GpuReport) -> None:
        assert report(one).advice == ()
        assert "low SM utilisation" not in verdict_line(report(one))

    def test_is_described_of_three_gpus_at_most(self) -> None:
        sentences = verdict_line(report(*[replace(LOW, index=index) for index in range(4)]))

        assert re.findall(r"GPU (\d)", sentences) == ["0", "1", "2"]

    def test_activity_is_not_read_without_evidence_of_it(self) -> None:
        document = encode_report(report(LOW))
        document["gpus"][0]["fill"]["evidence"] = None
        (read,) = decode_report(document).gpus

        assert read.fill is not None
        assert read.fill.sm_active == Mean()

    def test_is_in_json_with_its_evidence_or_with_nulls(self) -> None:
        low, unknown = (one["fill"] for one in encode_report(report(LOW, filled(None)))["gpus"])

        assert (low["evidence"], low["sm_active_ratio"], low["under_filled"]) == ("gpm", 0.24, True)
        assert (low["observed_seconds"], low["held_down"]) == (120.0, False)
        assert {unknown[name] for name in ("evidence", "sm_active_ratio", "power_ratio")} == {None}
        assert unknown["under_filled"] is False

    def test_reads_back_to_the_same_text_also_from_an_older_daemon(self) -> None:
        one = report(LOW, MIG_PARENT, mig_part(0, 80.0, 20.0))
        document = encode_report(one)

        assert shown(decode_report(document)) == shown(one)
        for name in ("fill", "label", "mig_enabled", "parent_uuid", "mig_index"):
            del document["gpus"][0][name]
        assert decode_report(document).gpus[0].fill is None


class TestAMigInstance:
    def test_is_in_json_with_its_gpu_and_without_coverage_where_it_has_no_data(self) -> None:
        gpus = encode_report(report(MIG_PARENT, mig_part(0), mig_part(1, 80.0)))["gpus"]

        assert [one["label"] for one in gpus] == ["0", "0:0", "0:1"]
        assert [one["parent_uuid"] for one in gpus] == [None, "GPU-a", "GPU-a"]
        assert [one["coverage_ratio"] for one in gpus] == [0.0, 0.0, 1.0]

    def test_is_offered_no_work_once_it_is_gone(self) -> None:
        gone = [replace(mig_part(0, 97.0), listed=False), replace(mig_part(1, 5.0), listed=False)]
        one = report(MIG_PARENT, *gone)

        assert one.advice == ()
        read = decode_report(encode_report(one))
        assert [gpu.listed for gpu in read.gpus] == [True, False, False]
