"""Specification of Prometheus' answers: corners the samples leave out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpumon.errors import UnreadableLogError, UsageError
from gpumon.sources.logs.formats.prometheus_json import PrometheusLog
from gpumon.sources.logs.log_sample import LogOptions, LogSample
from tests.builders_logs import ratios, read_log, seconds_of

UTIL = "DCGM_FI_DEV_GPU_UTIL"
ACTIVE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
Series = dict[str, Any]


def series(
    values: list[object], name: str | None = UTIL, *, start: float = 0, **labels: str
) -> Series:
    """One series, a value a second."""
    named = labels if name is None else {"__name__": name, **labels}
    pairs = [[1_700_000_000 + start + at, str(value)] for at, value in enumerate(values)]
    return {"metric": named, "values": pairs}


def answer(*result: Series, **layout: Any) -> str:
    data = {"resultType": "matrix", "result": list(result)}
    return json.dumps({"status": "success", "data": data}, **layout)


class TestASeries:
    def test_tells_who_it_is_of(self) -> None:
        labels: Series = {"gpu": "3", "UUID": "GPU-9", "modelName": "NVIDIA A40", "GPU_I_ID": "7"}

        (gpu,) = read_log(answer(series([96], **labels)))[1].gpus

        assert (gpu.index, gpu.uuid, gpu.name, gpu.mig_index) == (3, "GPU-9", "NVIDIA A40", 7)

    def test_has_stamps_to_the_millisecond(self) -> None:
        samples, facts = read_log(answer(series([1, 2], start=0.781, gpu="0")))

        assert samples[0].stamp_ns == 1_700_000_000_781_000_000
        assert facts.clock.iso(samples[0].stamp_ns) == "2023-11-14T22:13:20.781+00:00"

    @pytest.mark.parametrize("layout", [{}, {"indent": 4}, {"sort_keys": True}, {"indent": 0}])
    @pytest.mark.parametrize("piece", [3, 50, 1 << 16])
    def test_is_the_same_in_any_layout_and_any_pieces(
        self, layout: dict[str, Any], piece: int
    ) -> None:
        text = answer(series(list(range(60)), gpu="0"), series([5, 6], gpu="1"), **layout)
        pieces = iter([text[at : at + piece] for at in range(0, len(text), piece)])

        samples = list(PrometheusLog(pieces, name="x", options=LogOptions()).samples())

        assert [one.busy_ratio for one in samples if one.gpu == 0] == [at / 100 for at in range(60)]
        assert [one.busy_ratio for one in samples if one.gpu == 1] == [0.05, 0.06]

    @pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "101", "-1"])
    def test_may_have_values_that_are_none(self, value: str) -> None:
        samples, facts = read_log(answer(series([96, value, 3], gpu="0")))

        assert [sample.busy_ratio for sample in samples] == [0.96, None, 0.03]
        assert facts.skipped_lines == 1

    def test_that_breaks_off_is_read_so_far(self) -> None:
        text = answer(series([10, 20, 30], gpu="0"))
        cut = text[: text.index('"30"') + 2]

        samples, facts = read_log(cut)

        assert [sample.busy_ratio for sample in samples] == [0.1, 0.2]
        assert any("cut short" in note for note in facts.notes)

    @pytest.mark.parametrize("layout", [{}, {"indent": 4}, {"indent": 0}])
    @pytest.mark.parametrize(
        ("whole", "damaged", "read"),
        [
            ('"20"', '"2', [0.1, 0.4]),  # what comes behind it in its series is lost
            ('"gpu": "0"', '"gpu": "0', [0.4]),
            ('"gpu": "0"', '"gpu "0"', [0.4]),
        ],
    )
    def test_that_is_damaged_is_read_up_to_there_and_the_next_one_whole(
        self, whole: str, damaged: str, read: list[float], layout: dict[str, Any]
    ) -> None:
        text = answer(series([10, 20, 30], gpu="0"), series([40], gpu="1"), **layout)

        samples, facts = read_log(text.replace(whole, damaged))

        assert [sample.busy_ratio for sample in samples] == read
        assert facts.skipped_lines > 0

    def test_is_read_behind_an_answer_that_was_cut_in_the_same_line(self) -> None:
        text = answer(series([10, 20, 30], gpu="0"))
        cut = text[: text.index('"30"') - 5]

        samples, facts = read_log(cut + text)

        assert [sample.busy_ratio for sample in samples] == [0.1, 0.2, 0.3]
        assert facts.broken_off is None

    @pytest.mark.parametrize("moment", ["1e999", "-5", "null", "1e11"])
    def test_with_an_impossible_moment_is_counted(self, moment: str) -> None:
        text = answer(series([10, 20], gpu="0")).replace("1700000001", moment)

        samples, facts = read_log(text)

        assert ([one.busy_ratio for one in samples], facts.skipped_lines) == ([0.1], 1)


class TestSeriesOfOneGpu:
    def test_that_follow_each_other_are_put_together(self) -> None:
        log = answer(series([10, 20], gpu="0", pod="a"), series([30], gpu="0", pod="b", start=2))

        samples, facts = read_log(log)

        assert len(facts.gpus) == 1
        assert seconds_of([sample.stamp_ns for sample in samples]) == [0, 1, 2]

    def test_that_are_there_twice_count_once(self) -> None:
        text = answer(series([96, 0], gpu="0"), series([97, 97], gpu="1"))

        samples, facts = read_log(text + "\n" + text)

        assert samples == read_log(text)[0]
        assert len(facts.gpus) == 2
        assert "Skipped 4 lines of a time that the same series told of before" in facts.notes[-1]

    def test_that_overlap_are_put_together(self) -> None:
        samples, facts = read_log(
            answer(series([96, 0, 1], gpu="0")) + answer(series([0, 1, 2], gpu="0", start=1))
        )

        assert [one.busy_ratio for one in samples] == [0.96, 0.0, 0.01, 0.02]
        assert len(facts.gpus) == 1

    def test_at_the_same_time_are_shown_apart_and_said(self) -> None:
        log = answer(series([10, 20], gpu="0", pod="a"), series([30, 40], gpu="0", pod="b"))

        _, facts = read_log(log)

        assert [gpu.index for gpu in facts.gpus] == [None, None]
        assert any("Several series speak of one GPU" in note for note in facts.notes)

    def test_without_a_label_of_a_gpu_is_taken_for_one_and_said(self) -> None:
        _, facts = read_log(answer(series([10, 20], Hostname="node-a")))

        assert len(facts.gpus) == 1
        assert any("names no GPU" in note for note in facts.notes)


class TestMemory:
    def used(self, *result: Series) -> list[int | None]:
        samples: list[LogSample] = read_log(answer(*result))[0]
        return [sample.memory_used_bytes for sample in samples]

    def test_is_joined_where_the_moments_are_the_same(self) -> None:
        memory = series([12_000, 13_000], "DCGM_FI_DEV_FB_USED", start=1, gpu="0")

        found = self.used(memory, series([10, 20, 30, 40], gpu="0"))

        assert found == [None, 12_000 << 20, 13_000 << 20, None]

    def test_of_a_year_that_no_log_is_of_is_damaged(self) -> None:
        memory = series([12_000], "DCGM_FI_DEV_FB_USED", start=8_000_000_000, gpu="0")

        assert self.used(memory, series([10, 20], gpu="0")) == [None, None]

    def test_of_another_gpu_is_not(self) -> None:
        memory = series([12_000], "DCGM_FI_DEV_FB_USED", gpu="1")

        assert self.used(memory, series([10], gpu="0")) == [None]

    def test_that_comes_too_late_is_left_out_and_said(self) -> None:
        memory = series([12_000], "DCGM_FI_DEV_FB_USED", gpu="0")

        samples, facts = read_log(answer(series([10], gpu="0"), memory))

        assert samples[0].memory_used_bytes is None
        assert any("comes after the utilisation" in note for note in facts.notes)

    def test_says_how_much_there_is(self) -> None:
        total = series([4.8e10], "nvidia_smi_memory_total_bytes", uuid="a")
        busy = series([0.5], "nvidia_smi_utilization_gpu_ratio", uuid="a")

        assert read_log(answer(total, busy))[1].gpus[0].memory_bytes == 48_000_000_000


class TestWhichMetric:
    def test_is_utilisation_rather_than_engine_activity(self) -> None:
        log = answer(series([96], gpu="0"), series([0.5], ACTIVE, gpu="0"))

        samples, facts = read_log(log)

        assert [sample.busy_ratio for sample in samples] == [0.96]
        assert any(f"Read {UTIL} as the utilisation, not {ACTIVE}" in n for n in facts.notes)

    def test_may_be_named_by_the_user(self) -> None:
        log = answer(series([96], gpu="0"), series([0.5], ACTIVE, gpu="0"))

        assert ratios(log, LogOptions(columns={"utilization.gpu": ACTIVE})) == [0.5]

    def test_has_to_be_named_where_the_better_one_comes_later(self) -> None:
        log = answer(series([0.5], ACTIVE, gpu="0"), series([96], gpu="0"))

        with pytest.raises(UnreadableLogError, match=f"--column utilization.gpu={UTIL}"):
            read_log(log)

        assert ratios(log, LogOptions(columns={"utilization.gpu": UTIL})) == [0.96]

    def test_named_by_the_user_has_to_be_there(self) -> None:
        options = LogOptions(columns={"utilization.gpu": "my_gpu_busy"})

        with pytest.raises(UnreadableLogError, match="has no series of my_gpu_busy"):
            read_log(answer(series([96], gpu="0")), options)
        with pytest.raises(UsageError, match="has no columns; name a metric"):
            read_log(answer(series([96], gpu="0")), LogOptions(columns={"utilization.gpu": 1}))

    def test_that_only_rises_is_refused_with_the_query_to_use(self) -> None:
        log = answer(series([1, 2], "gpumon_gpu_busy_seconds_total", uuid="a"))

        with pytest.raises(UnreadableLogError, match=r"rate\(gpumon_gpu_busy_seconds_total\[1m\]"):
            read_log(log)

    @pytest.mark.parametrize("what", ["power", "fan_speed", "nvlink", "pcie", "memory", "encoder"])
    def test_of_a_part_of_a_gpu_is_not_its_utilisation(self, what: str) -> None:
        with pytest.raises(UnreadableLogError, match="is a utilisation"):
            read_log(answer(series([96], f"gpu_{what}_utilization", gpu="0")))

    def test_of_something_else_is_refused_by_name(self) -> None:
        with pytest.raises(UnreadableLogError, match="none of node_load1 is a utilisation"):
            read_log(answer(series([1, 2], "node_load1")))


class TestSeriesWithoutAName:
    def test_are_shares_where_no_value_exceeds_one(self) -> None:
        samples, facts = read_log(answer(series([0.96, 1.0003, 0], None, gpu="0")))

        assert [sample.busy_ratio for sample in samples] == [0.96, 1.0, 0.0]
        assert any("have no name" in note for note in facts.notes)
        assert any("as rates may have" in note for note in facts.notes)

    def test_are_percent_where_one_does(self) -> None:
        log = answer(series([0.5, 0.9], None, gpu="0"), series([0.5, 97.0], None, gpu="1"))

        samples, _ = read_log(log)

        assert {(one.gpu, one.busy_ratio) for one in samples} == {
            (0, 0.5 / 100),
            (0, 0.9 / 100),
            (1, 0.5 / 100),
            (1, 97.0 / 100),
        }

    def test_that_could_be_both_are_refused(self) -> None:
        with pytest.raises(UnreadableLogError, match="values are 0 and 1 only"):
            read_log(answer(series([0, 1, 1], None, gpu="0")))


class TestWhatIsNoSeriesOverTime:
    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ('{"status":"success","data":{"resultType":"vector","result":[]}}', "gave a vector"),
            ('{"data":{"result":[{"metric":{},"value":[1,"2"]}]}}', "gave values of one moment"),
            ('{"status":"error","errorType":"bad_data","error":"parse error"}', "parse error"),
            (answer(), "the answer has no series"),
        ],
    )
    def test_is_refused_with_what_to_ask(self, text: str, said: str) -> None:
        with pytest.raises(UnreadableLogError, match=said) as refused:
            read_log(text)

        assert "query" in str(refused.value)
