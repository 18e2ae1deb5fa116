"""Specification of what is said of the GPUs that a training names, or is joined to."""

from __future__ import annotations

import pytest

from gpumon.core.join.visible_devices import GpuName, doubt_of_names, doubt_of_work

EIGHT = [GpuName(str(index), f"GPU-{index}aa") for index in range(8)]
TWO = EIGHT[:2]
CUT = [GpuName("0", "GPU-0aa"), GpuName("0:0", "MIG-11"), GpuName("0:1", "MIG-22")]


class TestNamesThatFit:
    @pytest.mark.parametrize("names", [None, ("0",), ("7", "GPU-1"), (" 3 ",)])
    def test_are_not_doubted(self, names: tuple[str, ...] | None) -> None:
        assert doubt_of_names(names, EIGHT) is None

    def test_may_be_of_instances(self) -> None:
        assert doubt_of_names(("0:1", "MIG-1"), CUT) is None


class TestNamesThatFitNone:
    def test_are_told_with_those_there_are(self) -> None:
        assert doubt_of_names(("0", "99"), EIGHT) == (
            "names GPU 99, and there are GPU 0 to 7: "
            "set GPUMON_GPUS, or gpus=[...] in its tagger, to those"
        )

    @pytest.mark.parametrize(
        ("gpus", "said"),
        [
            (TWO, "there are GPU 0 and GPU 1"),
            (EIGHT[3:4], "there is GPU 3 alone"),
            (CUT, "there are GPU 0, GPU 0:0 and GPU 0:1"),
        ],
    )
    def test_are_told_with_any_number_of_them(self, gpus: list[GpuName], said: str) -> None:
        assert said in (doubt_of_names(("99",), gpus) or "")

    @pytest.mark.parametrize(
        ("name", "said"),
        [("cuda:0", "'cuda:0'"), ("-1", "'-1'"), ("None", "'None'"), ("a\nb" * 99, "'a")],
    )
    def test_are_quoted_where_they_are_no_numbers(self, name: str, said: str) -> None:
        doubt = doubt_of_names((name,), TWO)

        assert doubt is not None
        assert doubt.startswith(f"names {said}")
        assert "\n" not in doubt
        assert len(doubt) < 250

    def test_are_told_where_there_is_none_in_the_list(self) -> None:
        assert (doubt_of_names((), TWO) or "").startswith("names no GPU, and there are")


class TestARunThatWasSeenAtWorkNowhere:
    def test_is_told_that_no_process_is_on_simulated_gpus(self) -> None:
        doubt = doubt_of_work(None, TWO, simulated=True, pid=42)

        assert "simulated" in doubt
        assert "set GPUMON_GPUS=0 in its environment, or gpus=[0] in its tagger" in doubt

    def test_is_told_that_the_driver_lists_it_nowhere(self) -> None:
        doubt = doubt_of_work(None, TWO, simulated=False, pid=42)

        assert "lists its pid 42 on none" in doubt
        assert "set GPUMON_GPUS=0 in its environment, or gpus=[0] in its tagger" in doubt

    def test_is_told_of_strange_names_first(self) -> None:
        assert doubt_of_work(("9",), TWO, simulated=True, pid=42).startswith("names GPU 9, and")

    def test_is_told_that_the_gpu_it_names_did_nothing(self) -> None:
        doubt = doubt_of_work(("1",), TWO, simulated=False, pid=42)

        assert doubt == "names GPU 1, and was not seen at work there"
