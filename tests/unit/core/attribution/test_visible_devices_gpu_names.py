"""Specification of messages about the GPUs that a run names or uses."""

from __future__ import annotations

import pytest

from gpumon.core.attribution.visible_devices import (
    WHAT_TO_SET,
    GpuName,
    problem_with_names,
    problem_with_work,
)

EIGHT = [GpuName(str(index), f"GPU-{index}aa") for index in range(8)]
TWO = EIGHT[:2]
CUT = [GpuName("0", "GPU-0aa"), GpuName("0:0", "MIG-11"), GpuName("0:1", "MIG-22")]


class TestNamesThatFit:
    @pytest.mark.parametrize("names", [None, ("0",), ("7", "GPU-1"), (" 3 ",)])
    def test_are_not_doubted(self, names: tuple[str, ...] | None) -> None:
        assert problem_with_names(names, EIGHT) is None

    def test_may_be_of_instances(self) -> None:
        assert problem_with_names(("0:1", "MIG-1"), CUT) is None


class TestNamesThatFitNone:
    @pytest.mark.parametrize(
        ("gpus", "there"),
        [
            (EIGHT, "GPUs 0\N{EN DASH}7"),
            (TWO, "GPUs 0 and 1"),
            (EIGHT[3:4], "GPU 3"),
            (CUT, "GPUs 0, 0:0 and 0:1"),
        ],
    )
    def test_are_reported_with_those_there_are_and_what_to_set(
        self, gpus: list[GpuName], there: str
    ) -> None:
        doubt = problem_with_names((gpus[0].label, "99"), gpus) or ""

        named, _, those = doubt.partition(", but ")
        assert "GPU 99" in named
        assert f"GPU {gpus[0].label}" not in named
        assert there in those
        assert "GPUMON_GPUS" in those

    @pytest.mark.parametrize(
        ("name", "text"),
        [("cuda:0", "'cuda:0'"), ("-1", "'-1'"), ("None", "'None'"), ("a\nb" * 99, "'a")],
    )
    def test_are_quoted_where_they_are_no_numbers(self, name: str, text: str) -> None:
        doubt = problem_with_names((name,), TWO)

        assert doubt is not None
        assert doubt.startswith(f"names {text}")
        assert "\n" not in doubt
        assert len(doubt) < 250

    def test_are_reported_if_the_list_is_empty(self) -> None:
        assert (problem_with_names((), TWO) or "").partition(", ")[0].endswith("no GPU")


class TestARunThatWasSeenAtWorkNowhere:
    @pytest.mark.parametrize(("simulated", "why"), [(True, "simulated"), (False, "pid 42")])
    def test_says_why_and_what_to_set(self, simulated: bool, why: str) -> None:
        doubt = problem_with_work(None, TWO, simulated=simulated, pid=42)

        assert why in doubt
        assert WHAT_TO_SET in doubt

    def test_is_unknown_names_first(self) -> None:
        assert problem_with_work(("9",), TWO, simulated=True, pid=42) == problem_with_names(
            ("9",), TWO
        )

    def test_is_that_the_gpu_it_names_did_nothing(self) -> None:
        doubt = problem_with_work(("1",), TWO, simulated=False, pid=42)

        assert doubt.startswith("names GPU 1")
        assert "GPUMON_GPUS" not in doubt
