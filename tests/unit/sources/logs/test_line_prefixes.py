"""Tests of prefixes that another program put before each line."""

from __future__ import annotations

import pytest

from tests.builders.logs import CSV, DMON, example, read_log, rows, verified

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


def prefixed(prefix: str, *lines: str) -> list[str]:
    return [prefix + line for line in lines]


EVENTS = [f'{{"_timestamp": {1_700_000_000 + at}, "system.gpu.0.gpu": 96}}' for at in range(9)]

EXAMPLES = {
    "a prefix is shown in a note": example(
        *prefixed("[worker-0] ", *CSV), busy=[94, 0, 97], noted='such as "[worker-0]".'
    ),
    "prefixes may begin below a warning, and do not change line numbers": example(
        "Defaulted container gpu-logger", *prefixed("[worker-0] ", *CSV, "garbage"),
        busy=[94, 0, 97], skipped=2, noted="first at line 1.",
    ),
    "a prefix may be the last line of a log of JSON": example(
        *prefixed("2026-01-24 21:52:14 INFO ", *EVENTS, ""), is_cut=True, busy=[96] * 9
    ),
    "the lines of other writers are skipped": example(
        *prefixed("gpu-logger-1  | ", *CSV), *["trainer-1     | step 0, loss 0.3"] * 3,
        busy=[94, 0, 97], skipped=3,
    ),
    "the logs of several writers that are mixed are refused": example(
        *(f"[{who}] {line}" for line in CSV for who in ("worker-0", "worker-1")),
        refused="worker-0 and worker-1.*grep -F 'worker-0'",
    ),
}  # fmt: skip
NO_PREFIX = {
    "times before values": ("2026-01-24T21:52:14Z 94", "2026-01-24T21:52:15Z 0"),
    "times under a header": ("time util", "2026-01-24T21:52:14Z 94", "2026-01-24T21:52:15Z 0"),
    "times set apart by strokes": (
        "time | util", "2026-01-24 21:52:14 | 94", "2026-01-24 21:52:15 | 0"
    ),
    "the index that gpustat writes": ("[0] NVIDIA A40 | 61'C,  94 % | 12000 / 46068 MB |",) * 2,
}  # fmt: skip


class TestAPrefix:
    @pytest.mark.parametrize("prefix", PREFIXES)
    @pytest.mark.parametrize("lines", [CSV, CSV[1:], DMON], ids=["csv", "no header", "dmon"])
    def test_only_adds_a_note(self, prefix: str, lines: tuple[str, ...]) -> None:
        samples, facts = read_log(rows(*prefixed(prefix, *lines)))

        bare, bare_facts = read_log(rows(*lines))
        assert samples == bare
        assert facts.skipped_lines == 0
        assert facts.notes[-len(bare_facts.notes) or len(facts.notes) :] == bare_facts.notes
        assert "Ignored the prefix" in facts.notes[0]

    test_is_read_as_expected = verified(EXAMPLES)


class TestTextThatIsNoPrefix:
    @pytest.mark.parametrize("log", NO_PREFIX.values(), ids=NO_PREFIX)
    def test_is_not_removed(self, log: tuple[str, ...]) -> None:
        samples, facts = read_log(rows(*log))

        assert len(samples) == 2
        assert not any("Ignored the prefix" in note for note in facts.notes)
