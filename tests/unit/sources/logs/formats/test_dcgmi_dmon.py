"""Specification of dcgmi dmon: the best field that tells how busy, of GPUs and MIG instances."""

from __future__ import annotations

import pytest

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.log_sample import LoggedGpu
from tests.builders_logs import ratios, read_log, rows


class TestTheField:
    def test_is_the_utilisation_before_all_others(self) -> None:
        samples, facts = read_log(rows("#Entity GRACT GPUTL FBUSD", "ID", "GPU 0 0.999 45 1830"))

        assert [one.busy_ratio for one in samples] == [0.45]
        assert samples[0].memory_used_bytes == 1830 << 20
        assert any(note.startswith("Busy is GPUTL (203)") for note in facts.notes)

    @pytest.mark.parametrize(
        ("fields", "taken"), [("SMACT GRACT", "GRACT (1001)"), ("SMOCC SMACT", "SMACT (1002)")]
    )
    def test_is_a_stand_in_where_there_is_none_and_that_is_said(
        self, fields: str, taken: str
    ) -> None:
        samples, facts = read_log(rows(f"#Entity {fields}", "ID", "GPU 0 0.2 0.5"))

        assert [one.busy_ratio for one in samples] == [0.5]
        assert any(taken in note for note in facts.notes)

    def test_is_the_next_best_where_an_instance_has_no_utilisation(self) -> None:
        log = rows("#Entity GPUTL GRACT", "ID", "GPU 0 N/A 0.4", "GPU-I 3 N/A 0.8")

        assert ratios(log) == [0.4, 0.8]

    def test_may_say_nothing(self) -> None:
        samples, facts = read_log(
            rows("#Entity GPUTL", "ID", "GPU 0 45", "GPU 0 N/A", "GPU 0 Not Supported", "GPU 0 5")
        )

        assert [one.busy_ratio for one in samples] == [0.45, None, None, 0.05]
        assert facts.skipped_lines == 2

    def test_changes_with_a_header(self) -> None:
        log = rows("#Entity GPUTL", "ID", "GPU 0 45", "# Entity GRACT FBUSD", "  Id", "GPU 0 0.5 9")

        assert ratios(log) == [0.45, 0.5]


class TestEntities:
    def test_are_gpus_and_instances_of_the_only_gpu(self) -> None:
        _, facts = read_log(rows("#Entity GRACT", "ID", "GPU 2 0.5", "GPU-I 0 0.6", "GPU-I 1 0.7"))

        assert facts.gpus == (
            LoggedGpu(index=2, mig_enabled=True),
            LoggedGpu(index=2, mig_index=0),
            LoggedGpu(index=2, mig_index=1),
        )

    def test_of_nobody_knows_which_gpu_keep_the_name_that_dcgmi_gives(self) -> None:
        _, facts = read_log(rows("#Entity GRACT", "ID", "GPU 0 0.5", "GPU 1 0.6", "GPU-I 4 0.7"))

        assert facts.gpus[2] == LoggedGpu(name="GPU-I 4")

    def test_within_an_instance_and_outside_of_gpus_are_passed_over(self) -> None:
        samples, facts = read_log(
            rows("#Entity GRACT", "ID", "GPU 0 0.5", "GPU-CI 0 0.9", "Switch 1 0.1")
        )

        assert [one.busy_ratio for one in samples] == [0.5]
        assert facts.skipped_lines == 0


class TestTheLog:
    @pytest.mark.parametrize(
        "line",
        ["Error: lost the host engine", "GPU 0", "GPU x 45", "GPU 0 45 7", "^C"],
    )
    def test_counts_what_is_no_row(self, line: str) -> None:
        samples, facts = read_log(rows("#Entity GPUTL", "ID", "GPU 0 45", line, "GPU 0 50"))

        assert [one.busy_ratio for one in samples] == [0.45, 0.5]
        assert facts.skipped_lines == 1

    def test_has_a_second_a_row_and_says_so(self) -> None:
        samples, facts = read_log(rows("#Entity GPUTL", "ID", "GPU 0 45", "GPU 0 50"))

        assert samples[1].stamp_ns - samples[0].stamp_ns == 10**9
        assert any("1 s a row (assumed" in note for note in facts.notes)
        assert facts.clock.iso(samples[0].stamp_ns) is None

    def test_without_a_field_of_use_says_what_to_log(self) -> None:
        with pytest.raises(UnreadableLogError, match="-e 203,252"):
            read_log(rows("#Entity POWER TMPTR", "ID", "GPU 0 61.5 40"))
