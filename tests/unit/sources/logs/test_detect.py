"""Tests of detection: by content, never by the name of the file."""

from __future__ import annotations

import pytest

from tests.builders.logs import CSV, DMON, example, read_log, rows, verified

EXAMPLES = {
    "any other log is a CSV": example("45", "46", busy=[45, 46]),
    "two formats in one file are read as the first, CSV": example(
        *CSV, *DMON, busy=[94, 0, 97], at_s=[0, 1, 2], skipped=len(DMON)
    ),
    "two formats in one file are read as the first, a table": example(
        *DMON, *CSV, busy=[94, 0], is_wall=False, skipped=len(CSV)
    ),
    **{
        f"a file that is no log is refused as {message}: {lines[0]}": example(
            *lines, refused=rf"line \d: this is .*{message}.*; .* `nvidia-smi --query-gpu"
        )
        for message, *lines in (
            ("a page of HTML", "<!DOCTYPE html>", "<html><body>a, b, 5 %</body></html>"),
            ("a page of HTML", "", "<html>"),
            ("an exporter", "# HELP DCGM_FI_DEV_GPU_UTIL in %", 'DCGM_FI_DEV_GPU_UTIL{gpu="0"} 97'),
            ("an exporter", 'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1"} 97'),
            ("a table of Markdown", "| time | Util % |", "|---|--:|", "| 09:00:00 | 9 |"),
            ("of a database", " time | util ", "------+------", " 09:00:00 |   9"),
        )
    },
    **{
        # The dots match no line end: the refusal is one line.
        f"JSON of another tool is refused with what is needed: {json}": example(
            *json.split("\n"), refused=rf"\A.*{found}.*gpustat --json.*\Z"
        )
        for json, found in (
            ('{"loss": 0.3, "lr": 1}', "has loss, lr, and no utilisation"),
            ('{\n    "gpus": []\n}', "has `gpus` and no `query_time`"),
            ('[{"step": 1}]', "has step, and"),
            ("[1, 2, 3]", "holds no complete object"),
            ('{"loss": ', "holds no complete object"),
            ('\n\n{"a": {"b": [1, 2]}}', "has a, and"),
        )
    },
}  # fmt: skip


class TestExamples:
    test_is_read_as_expected = verified(EXAMPLES)


class TestLinesAboveALog:
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
    def test_are_skipped(self, above: tuple[str, ...], log: tuple[str, ...]) -> None:
        samples, facts = read_log(rows(*above, *log))

        assert samples == read_log(rows(*log))[0]
        assert facts.skipped_lines <= len(above)
