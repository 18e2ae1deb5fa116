"""Specification of nvitop's tables: corners the samples leave out."""

from __future__ import annotations

import pytest

from gpumon.errors import UnreadableLogError
from tests.builders_logs import ratios, read_log, rows, seconds_of


def table(second: int | None, busy: str, used: str = "12000MiB", mig: str = "Disabled") -> str:
    """One table of one GPU."""
    moment = "" if second is None else f"Sat Jan 24 21:05:{second:02d} 2026"
    return rows(
        moment,
        "│ NVITOP 1.7.2       Driver Version: 580.95.05      CUDA Driver Version: 13.0 │",
        "│ Fan  Temp  Perf  Pwr:Usage/Cap│         Memory-Usage │ GPU-Util  Compute M. │",
        f"│   3  H100 80GB HBM3        On │ 00000000:1A:00.0 Off │ {mig:>8}           0 │",
        f"│ 30%   54C   P0    310W / 700W │ {used:>9} / 79.65GiB │ {busy:>7}      Default │ 9% │",
        "│   3    7144 C    root  7168MiB  64    10   0.0   0.0  0:02  python 55% Default │",
    )


class TestATable:
    def test_tells_gpu_moment_utilisation_and_memory(self) -> None:
        samples, facts = read_log(table(1, "96%") + table(3, "100%"))

        assert [sample.busy_ratio for sample in samples] == [0.96, 1.0]
        assert seconds_of([sample.stamp_ns for sample in samples]) == [0, 2]
        assert samples[0].memory_used_bytes == 12_000 << 20
        assert (facts.gpus[0].index, facts.gpus[0].name) == (3, "H100 80GB HBM3")
        assert facts.gpus[0].memory_bytes == pytest.approx(79.65 * (1 << 30), abs=1)

    def test_goes_on_past_lines_of_something_else_which_are_counted(self) -> None:
        samples, facts = read_log(table(1, "96%") + "2026/01/24 21:05:14.120, 0, 94 %\n")

        assert (len(samples), facts.skipped_lines) == (1, 1)

    def test_of_a_gpu_cut_into_instances_has_no_answer(self) -> None:
        samples, facts = read_log(table(1, "N/A", mig="Enabled") + table(2, "3%"))

        assert [sample.busy_ratio for sample in samples] == [None, 0.03]
        assert facts.gpus[0].mig_enabled
        assert facts.skipped_lines == 1

    def test_in_colours_is_read_as_without(self) -> None:
        plain = table(1, "96%")

        coloured = plain.replace("│ 30%", "│\x1b[31m 30%").replace("96%", "\x1b[1m96%\x1b[0m")

        assert coloured != plain
        assert ratios(coloured) == [0.96]

    def test_without_a_moment_above_it_counts_rows_and_says_so(self) -> None:
        samples, facts = read_log(table(None, "96%") + table(None, "3%"))

        assert seconds_of([sample.stamp_ns for sample in samples]) == [0, 1]
        assert any("no time stamps" in note for note in facts.notes)

    @pytest.mark.parametrize(("used", "in_use"), [("0B", 0), ("1.50GiB", 3 << 29), ("N/A", None)])
    def test_writes_memory_in_units_of_its_own(self, used: str, in_use: int | None) -> None:
        assert read_log(table(1, "5%", used))[0][0].memory_used_bytes == in_use

    def test_with_more_memory_than_a_number_can_hold_is_no_row(self) -> None:
        log = table(1, "5%") + table(2, "5%", "9" * 400 + "MiB")

        assert len(read_log(log)[0]) == 1

    def test_without_any_gpu_is_refused(self) -> None:
        with pytest.raises(UnreadableLogError, match="no table with a utilisation"):
            read_log(rows("│ NVITOP 1.7.2       Driver Version: N/A │", "No devices"))
