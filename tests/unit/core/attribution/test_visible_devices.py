"""Specification of the GPUs that a run names: which names match, and which are shown how."""

from __future__ import annotations

import pytest

from gpumon.core.attribution.visible_devices import GpuName, problem_with_names

GPUS = [GpuName("0", "GPU-0aa"), GpuName("0:0", "MIG-11"), GpuName("0:1", "MIG-22")]


@pytest.mark.parametrize("names", [None, ("0",), ("0:1", "MIG-1"), (" GPU-0 ",)])
def test_names_of_gpus_and_instances_match(names: tuple[str, ...] | None) -> None:
    assert problem_with_names(names, GPUS) is None


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (("0", "99"), "GPU 99, but there are only GPUs 0, 0:0 and 0:1: set GPUMON_GPUS"),
        (("cuda:0",), "'cuda:0'"),
        (("-1",), "'-1'"),
        (("a\nb" * 99,), "'a\N{REPLACEMENT CHARACTER}b"),
        ((), "no GPU, but"),
    ],
)
def test_other_names_are_shown_and_safe_to_print(names: tuple[str, ...], shown: str) -> None:
    problem = problem_with_names(names, GPUS) or ""

    assert problem.startswith(f"names {shown}")
    assert problem.isprintable()
    assert len(problem) < 250
