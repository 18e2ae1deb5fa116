"""Specification of gpustat's logs, for programs and for people: corners the samples leave out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.log_sample import LogOptions
from tests.builders_logs import ratios, read_log, rows, seconds_of

HEAD = "node-7      Sat Jan 24 21:05:{:02d} 2026  580.95.05"


def gpu(percent: object, index: int = 0) -> dict[str, Any]:
    said = {"index": index, "uuid": f"GPU-{index}", "name": "NVIDIA A40"}
    return {**said, "utilization.gpu": percent, "memory.used": 12_000, "memory.total": 46_068}


def reading(second: int, *gpus: dict[str, Any], host: str = "node-7") -> str:
    moment = f"2026-01-24T21:05:{second:02d}.195000"
    return json.dumps({"hostname": host, "query_time": moment, "gpus": gpus})


def line(percent: object, index: int = 0, *, between: str = " ", memory: str = "12000") -> str:
    return f"[{index}] NVIDIA A40 | 61°C,{between}{percent:>3} % | {memory} / 46068 MB | mira(9M)"


class TestJson:
    def test_tells_what_is_known_of_the_gpu(self) -> None:
        samples, facts = read_log(rows(reading(1, gpu(96))))

        (known,) = facts.gpus
        assert (known.index, known.uuid, known.name) == (0, "GPU-0", "NVIDIA A40")
        assert known.memory_bytes == 46_068 << 20
        assert samples[0].memory_used_bytes == 12_000 << 20

    @pytest.mark.parametrize("answer", [None, "[N/A]", 101, -1, "busy", True, 10**400])
    def test_without_an_answer_is_not_observed(self, answer: object) -> None:
        log = rows(reading(1, gpu(96)), reading(2, gpu(answer)))

        samples, facts = read_log(log)

        assert samples[1].busy_ratio is None
        assert facts.skipped_lines == 1

    def test_counts_a_reading_without_a_moment(self) -> None:
        log = rows(reading(1, gpu(96)), json.dumps({"query_time": None, "gpus": [gpu(3)]}))

        samples, facts = read_log(log)

        assert (len(samples), facts.skipped_lines) == (1, 1)

    def test_without_the_uuid_is_of_the_gpu_with_that_index(self) -> None:
        nameless = gpu(0)
        del nameless["uuid"]

        _, facts = read_log(rows(reading(1, gpu(96)), reading(2, nameless)))

        assert [known.uuid for known in facts.gpus] == ["GPU-0"]

    def test_that_was_killed_in_the_middle_goes_on_with_the_next_reading(self) -> None:
        whole = json.dumps(json.loads(reading(1, gpu(96))), indent=4)

        samples, facts = read_log(rows(whole, whole[:200], whole.replace(":01.", ":03.")))

        assert seconds_of([sample.stamp_ns for sample in samples]) == [0, 2]
        assert facts.skipped_lines == 1

    @pytest.mark.parametrize("gpus", [[], [None], [3], {"0": 1}, "none", [{"name": "A40"}]])
    def test_without_any_gpu_is_refused(self, gpus: object) -> None:
        log = rows(json.dumps({"query_time": "2026-01-24T21:05:14.1", "gpus": gpus}))

        with pytest.raises(UnreadableLogError, match="no reading with a utilisation"):
            read_log(log)


class TestLinesForPeople:
    def test_have_the_moment_of_the_head_above_them(self) -> None:
        log = rows(HEAD.format(1), line(96), line(0, 1), HEAD.format(3), line(95), line(2, 1))

        samples, facts = read_log(log)

        assert seconds_of([sample.stamp_ns for sample in samples]) == [0, 0, 2, 2]
        assert facts.clock.iso(samples[0].stamp_ns) == "2026-01-24T21:05:01.000"

    @pytest.mark.parametrize(
        "between", [" ", "  30 %, ", "  ?? %, "], ids=["plain", "with the fan", "without a fan"]
    )
    def test_are_read_past_the_fan(self, between: str) -> None:
        assert ratios(rows(HEAD.format(1), line(96, between=between))) == [0.96]

    def test_are_read_before_the_codecs_and_the_power(self) -> None:
        state = "[0] NVIDIA A40 | 61'C,  96 % (E:   7 %  D:   9 %),  212 / 300 W | 1 / 46068 MB |"

        assert ratios(rows(HEAD.format(1), state)) == [0.96]

    def test_without_an_answer_are_not_observed(self) -> None:
        samples, facts = read_log(rows(HEAD.format(1), line("??", memory="??"), line(5, 1)))

        assert [sample.busy_ratio for sample in samples] == [None, 0.05]
        assert facts.skipped_lines == 1

    def test_of_two_hosts_are_of_different_gpus(self) -> None:
        log = rows(HEAD.format(1), line(96), HEAD.format(1).replace("-7", "-8"), line(3))

        assert len(read_log(log)[1].gpus) == 2

    def test_under_a_damaged_head_are_of_no_other_host(self) -> None:
        heads = [HEAD.format(second) for second in range(4)]
        heads[2] = heads[2].replace("node", "nXde")
        log = rows(*(one for head in heads for one in (head, line(96), line(3, 1))))

        samples, facts = read_log(log)

        assert (len(facts.gpus), len(samples)) == (2, 6)
        assert "Skipped 2 lines of no GPU that can be told from the others" in facts.notes[-1]

    def test_of_hosts_in_turn_are_all_read(self) -> None:
        heads = [HEAD.format(at // 2).replace("-7", f"-{at % 2}") for at in range(6)]

        samples, facts = read_log(rows(*(one for head in heads for one in (head, line(96)))))

        assert (len(samples), len(facts.gpus), facts.skipped_lines) == (6, 2, 0)

    def test_go_on_past_lines_of_something_else_which_are_counted(self) -> None:
        other = "2026/01/24 21:05:14.120, 0, 94 %"
        process = " ├─ 2211 ( 100%,  512MB): python train.py"

        samples, facts = read_log(rows(HEAD.format(1), line(96), process, other, other))

        assert (len(samples), facts.skipped_lines) == (1, 2)

    def test_under_a_head_in_another_language_are_counted_not_guessed(self) -> None:
        foreign = "node-7    Sa 24 Jan 2026 21:05:02 CET von hier  580.95.05".replace("Jan", "Jän")
        log = rows(HEAD.format(1), line(96), foreign, line(3))

        samples, facts = read_log(log)

        assert (len(samples), facts.skipped_lines) == (1, 1)
        assert any("with a time that cannot be read" in note for note in facts.notes)

    def test_without_heads_count_the_period_told(self) -> None:
        samples, facts = read_log(rows(line(96), line(3)), LogOptions(period_ns=5_000_000_000))

        assert seconds_of([sample.stamp_ns for sample in samples]) == [0, 5]
        assert facts.period_ns == 5_000_000_000
