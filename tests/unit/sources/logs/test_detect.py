"""Specification of detection: by content, whatever the file is called."""

from __future__ import annotations

import pytest

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.formats import formats
from tests.builders_logs import ratios, read_log, rows

DMON = ("# gpu     sm    mem", "# Idx      %      %", "    0     94     40", "    0      0      0")
CSV = (
    "timestamp, index, utilization.gpu [%]",
    "2026/01/24 21:52:14.120, 0, 94 %",
    "2026/01/24 21:52:15.120, 0, 0 %",
)


class TestAFormatThatIsNotRead:
    def test_is_named_with_what_to_log_instead(self) -> None:
        log = rows('<?xml version="1.0" ?>', "<nvidia_smi_log>")

        with pytest.raises(UnreadableLogError, match=r"line 2: this is the XML.*--format=csv"):
            read_log(log)


class TestEverythingElse:
    def test_is_read_as_csv(self) -> None:
        assert ratios("45\n46\n") == [0.45, 0.46]


class TestTheFormats:
    def test_are_all_files_of_their_folder_and_csv_is_tried_last(self) -> None:
        assert [known.title for known in formats() if known.is_last_resort] == ["CSV"]
        assert formats()[-1].title == "CSV"


class TestWhatStandsAboveALog:
    @pytest.mark.parametrize("log", [CSV, CSV[1:], DMON], ids=["csv", "no header", "dmon"])
    @pytest.mark.parametrize(
        "above",
        [
            ("", "(base) user@host:~$ ./log.sh", ""),
            ("$ nvidia-smi --query-gpu=timestamp,index,utilization.gpu --format=csv -l 1",),
            ('Script started on 2026-01-24 21:52:14+00:00 [TERM="xterm"]', "$ ./log.sh"),
            tuple(f"Welcome to node 7, line {line} of its rules" for line in range(300)),
            ("\x1b[H\x1b[2JEvery 1.0s: ./log.sh     host: Sat Jan 24 21:52:14 2026", ""),
        ],
        ids=["prompt", "command", "script", "login", "watch"],
    )
    def test_does_not_matter(self, above: tuple[str, ...], log: tuple[str, ...]) -> None:
        samples, facts = read_log(rows(*above, *log))

        assert samples == read_log(rows(*log))[0]
        assert facts.skipped_lines <= len(above)


class TestTwoFormatsInOneFile:
    def test_are_read_as_the_one_that_comes_first_and_the_other_is_skipped(self) -> None:
        csv_first, facts = read_log(rows(*CSV, *DMON))
        dmon_first, dmon_facts = read_log(rows(*DMON, *CSV))

        assert csv_first == read_log(rows(*CSV))[0]
        assert dmon_first == read_log(rows(*DMON))[0]
        assert (facts.skipped_lines, dmon_facts.skipped_lines) == (len(DMON), len(CSV))


class TestALogOfTroubleAlone:
    @pytest.mark.parametrize(
        "trouble",
        [
            "No devices were found",
            "Failed to initialize NVML: Driver/library version mismatch",
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make "
            "sure that the latest NVIDIA driver is installed and running.",
        ],
    )
    def test_is_refused_with_what_nvidia_smi_said(self, trouble: str) -> None:
        with pytest.raises(UnreadableLogError, match="nvidia-smi could not ask the GPU"):
            read_log(rows(trouble, "", trouble))

    def test_is_refused_under_dates_too_with_what_to_do(self) -> None:
        log = rows("Mon May 11 14:02:04 UTC 2026", "No devices were found") * 3

        with pytest.raises(UnreadableLogError, match=r"line 2: nvidia-smi could not .*; once `nvi"):
            read_log(log)


class TestWhatIsNoLogAtAll:
    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("<!DOCTYPE html>\n<html><body>a, b, 5 %</body></html>\n", "a page of HTML"),
            ("\n<html>\n", "a page of HTML"),
            ('# HELP DCGM_FI_DEV_GPU_UTIL in %\nDCGM_FI_DEV_GPU_UTIL{gpu="0"} 97\n', "an exporter"),
            ('DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1"} 97\n', "an exporter"),
        ],
    )
    def test_is_said_to_be_what_it_is_with_what_to_log(self, text: str, said: str) -> None:
        with pytest.raises(
            UnreadableLogError, match=rf"line \d: this is .*{said}.*; .* `nvidia-smi --query-gpu"
        ):
            read_log(text)

    def test_is_not_looked_for_below_the_beginning(self) -> None:
        assert len(read_log(rows(*CSV, "<html>"))[0]) == len(read_log(rows(*CSV))[0])


class TestASentence:
    def test_about_a_time_has_its_line(self) -> None:
        log = rows("", "utilization.gpu [%],timestamp", *["57 %,57 %"] * 9)

        with pytest.raises(UnreadableLogError, match="line 3: the time '57 %' has no form"):
            read_log(log)

    def test_about_time_that_stands_still_says_what_to_log(self) -> None:
        log = rows("time,gpu_util", *["2026-05-11 14:02:04,97"] * 9)

        with pytest.raises(UnreadableLogError, match=r"time stands still: .*; log the time of"):
            read_log(log)
