"""The names that people's code, dashboards and scripts rest on: additions welcome, removals not."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable
from enum import Enum

import pytest

from gpumon.core.phase import CAUSES, PHASES, InputWaitReason
from gpumon.core.verdict import Pattern, Severity, VerdictName
from gpumon.errors import (
    GpumonError,
    NoDaemonError,
    NothingToJudgeError,
    SourceUnavailableError,
    UnreadableLogError,
    UsageError,
)


class TestTheClosedSets:
    def test_training_phases_are_in_the_order_of_the_ring(self) -> None:
        assert [phase.value for phase in PHASES] == [
            "start_up", "compile", "input_wait", "host_to_device", "train_step", "device_sync",
            "callbacks", "checkpoint", "validation", "predict", "between_epochs", "other",
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("members", "names"),
        [
            (CAUSES, {
                "start_up", "compile", "input_wait", "host_to_device", "within_step", "imbalance",
                "callbacks", "checkpoint", "validation", "between_epochs", "unknown", "not_in_use",
            }),
            (InputWaitReason, {
                "cpu_bound", "gil_bound", "disk_bound", "network_bound", "memory_pressure",
                "latency_bound", "unknown",
            }),
            (VerdictName, {
                "hanging", "too_few_samples", "not_in_use", "too_short_to_judge", "healthy",
                "starved", "stalled", "starvation_suspected", "partial",
            }),
            (Severity, {"none", "moderate", "high"}),
            (Pattern, {"unused", "busy", "bursty", "partial"}),
        ],
        ids=["causes of idle time", "reasons why an input is late", "verdicts", "severities",
             "patterns"],
    )  # fmt: skip
    def test_of(self, members: Iterable[Enum], names: set[str]) -> None:
        assert {one.value for one in members} == names


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (GpumonError, 1),
        (UnreadableLogError, 1),
        (UsageError, 2),
        (SourceUnavailableError, 3),
        (NoDaemonError, 4),
        (NothingToJudgeError, 5),
    ],
)
def test_exit_codes_mean_what_the_help_says(error: type[GpumonError], exit_code: int) -> None:
    assert error.exit_code == exit_code


class TestTheHooks:
    @pytest.mark.parametrize(
        "name",
        [
            *("phase", "timed", "PhaseTagger", "devices"),
            *("multi_gpu_model", "to_multi_gpu", "slice_batch", "serialize", "RatioBalancer"),
            *("fixed_batches", "NaNGuard", "prefetch_to_device"),
        ],
    )
    def test_offer(self, name: str) -> None:
        hooks = importlib.import_module("trainer_hooks")

        assert name in hooks.__all__

    @pytest.mark.parametrize(
        ("room", "names"),
        [
            ("ddp", {"BatchShare", "RatioBalancer", "RatioSampler", "global_mean", "global_sum"}),
            ("accelerate", {"split_by_ratios"}),
            ("lightning", {"PhaseTagger", "RatioStrategy"}),
        ],
    )
    def test_offer_to_ranks_without_a_framework(self, room: str, names: set[str]) -> None:
        assert names <= vars(importlib.import_module(f"trainer_hooks.{room}")).keys()

    def test_document_everything_they_offer(self) -> None:
        hooks = importlib.import_module("trainer_hooks")
        light = [name for name in hooks.__all__ if name not in hooks._MODULES]

        assert [name for name in light if not inspect.getdoc(getattr(hooks, name))] == []
