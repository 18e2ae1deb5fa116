"""Specification of prefixes: what another program put before each line hides no log."""

from __future__ import annotations

import pytest

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.line_prefixes import prefixes_of
from tests.builders_logs import read_log, rows

CSV = (
    "timestamp, index, utilization.gpu [%]",
    "2026/01/24 21:52:14.120, 0, 94 %",
    "2026/01/24 21:52:15.120, 0, 0 %",
    "2026/01/24 21:52:16.120, 0, 97 %",
)
DMON = ("# gpu     sm    mem", "# Idx      %      %", "    0     94     40", "    0      0      0")
PREFIXES = (
    "[worker-0] ",
    "[pod/train-7d9f/gpu-logger] ",
    "(Logger pid=2211) ",
    "[rank0]: ",
    "gpu-logger-1  | ",
    "0: ",
    "node7: ",
    "2026-01-24T21:52:14.123456789Z ",
    "2026-01-24T21:52:14.123456789Z stdout F ",
    "[pod/train-7d9f/gpu-logger] 2026-01-24T21:52:14.123456789Z ",
    "2026-01-24T21:52:14+0100 node7 gpulog[2211]: ",
    "Jan 24 21:52:14 node7 gpulog[2211]: ",
    "Jan 24 21:52:14 ",
    "2026-01-24 21:52:14,123 INFO ",
    "2026-01-24 21:52:14,123 - gpulog - INFO - ",
    "2026-01-24 21:52:14 | INFO | ",
    "[2026-01-24 21:52:14] ",
    "INFO:gpulog:",
)


def prefixed(prefix: str, lines: tuple[str, ...]) -> str:
    return rows(*(prefix + line for line in lines))


class TestWhatStandsBeforeEveryLine:
    @pytest.mark.parametrize("prefix", PREFIXES)
    @pytest.mark.parametrize("lines", [CSV, CSV[1:], DMON], ids=["csv", "no header", "dmon"])
    def test_changes_nothing_but_a_note(self, prefix: str, lines: tuple[str, ...]) -> None:
        samples, facts = read_log(prefixed(prefix, lines))

        bare, bare_facts = read_log(rows(*lines))
        assert samples == bare
        assert facts.skipped_lines == 0
        assert facts.notes[-len(bare_facts.notes) or len(facts.notes) :] == bare_facts.notes
        assert "Passed over what stands before each line" in facts.notes[0]

    def test_is_shown_as_it_stands_there(self) -> None:
        _, facts = read_log(prefixed("[worker-0] ", CSV))

        assert 'such as "[worker-0]".' in facts.notes[0]

    def test_may_begin_below_a_warning_and_keeps_the_numbers_of_lines(self) -> None:
        log = "Defaulted container gpu-logger\n" + prefixed("[worker-0] ", (*CSV, "garbage"))

        samples, facts = read_log(log)

        assert len(samples) == 3
        assert facts.notes[-1].endswith("first at line 1.")
        assert facts.skipped_lines == 2

    def test_may_stand_before_nothing_where_a_log_of_json_ends(self) -> None:
        events = [
            f'{{"_timestamp": {1_700_000_000 + at}, "system.gpu.0.gpu": 96}}' for at in range(9)
        ]
        log = prefixed("2026-01-24 21:52:14 INFO ", (*events, "")).removesuffix("\n")

        assert [sample.busy_ratio for sample in read_log(log)[0]] == [0.96] * 9

    def test_lets_the_lines_of_other_writers_be_skipped(self) -> None:
        steps = [f"trainer-1     | step {step}, loss 0.3" for step in range(3)]
        log = rows(*(f"gpu-logger-1  | {line}" for line in CSV), *steps)

        samples, facts = read_log(log)

        assert (len(samples), facts.skipped_lines) == (3, 3)

    def test_says_so_where_the_logs_of_several_writers_are_mixed(self) -> None:
        both = [f"[{who}] {line}" for line in CSV for who in ("worker-0", "worker-1")]

        with pytest.raises(UnreadableLogError, match=r"worker-0 and worker-1.*grep -F 'worker-0'"):
            read_log(rows(*both))


class TestWhatIsNoPrefix:
    @pytest.mark.parametrize(
        "log",
        [
            rows("2026-01-24T21:52:14Z 94", "2026-01-24T21:52:15Z 0", "2026-01-24T21:52:16Z 97"),
            rows("time util", "2026-01-24T21:52:14Z 94", "2026-01-24T21:52:15Z 0"),
            rows("time | util", "2026-01-24 21:52:14 | 94", "2026-01-24 21:52:15 | 0"),
        ],
        ids=["times and values", "under a header", "set apart by strokes"],
    )
    def test_is_left_where_it_is(self, log: str) -> None:
        _, facts = read_log(log)

        assert not any("Passed over" in note for note in facts.notes)

    def test_is_the_index_that_gpustat_writes(self) -> None:
        line = "[0] NVIDIA A40 | 61'C,  94 % | 12000 / 46068 MB |"

        samples, facts = read_log(rows(line, line))

        assert len(samples) == 2
        assert not any("Passed over" in note for note in facts.notes)

    def test_is_a_time_that_stands_where_a_name_might(self) -> None:
        """Each time was tried as a writer, in two layers: 300 lines took half a minute."""
        tried: list[int] = []
        head = [f"[2026-05-11 14:{at // 60:02d}:{at % 60:02d}] loss={at}\n" for at in range(300)]

        assert prefixes_of(head, lambda bare: tried.append(len(bare)), name="log") == ()
        assert len(tried) < 40
