"""Specification of processes in the document of the API: whose, and no more than was asked for."""

from __future__ import annotations

from gpumon.core.documents.state_codec import MOST_PROCESSES, process_documents
from gpumon.core.sample import GpuSample, ProcessSample
from gpumon.core.state import GpuState
from tests.builders_state import device, healthy_gpu


def gpu_with(*processes: ProcessSample) -> GpuState:
    return healthy_gpu(latest=GpuSample(device=device(), processes=processes))


class TestAProcess:
    def test_has_pid_memory_and_share(self) -> None:
        shown = process_documents(gpu_with(ProcessSample(4000, 2 << 30, 0.5)))

        assert shown == [{"pid": 4000, "memory_used_bytes": 2 << 30, "sm_ratio": 0.5}]

    def test_has_a_name_and_a_user_where_they_were_asked_for(self) -> None:
        shown = process_documents(gpu_with(ProcessSample(4000, None, None, "py\x1bthon", "ada")))

        assert shown == [
            {"pid": 4000, "memory_used_bytes": None, "sm_ratio": None, "name": "py\ufffdthon",
             "user": "ada"},
        ]  # fmt: skip


class TestTheList:
    def test_is_unknown_where_the_driver_does_not_tell_or_the_gpu_is_gone(self) -> None:
        assert process_documents(healthy_gpu()) is None
        assert process_documents(gpu_with()._replace(present=False)) is None
        assert process_documents(gpu_with()) == []

    def test_is_bounded_and_shows_who_holds_the_most_memory(self) -> None:
        many = [ProcessSample(pid, pid << 20) for pid in range(1, 1000)]

        shown = process_documents(gpu_with(*many))

        assert shown is not None
        assert [process["pid"] for process in shown] == list(range(999, 999 - MOST_PROCESSES, -1))
