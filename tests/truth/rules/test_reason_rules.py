"""Reasons of waits for input: what was measured where one held, and what is just beside it.

Each look is one that a training run really gave, to a hundredth of a core: sixteen conditions were
produced on a machine of two cores, and watched from another process.
"""

from __future__ import annotations

from typing import Any

from gpumon.core.settings.host import DEFAULT_HOST_SETTINGS
from gpumon.core.waits.evidence import TaskSample
from gpumon.core.waits.wait_rules import (
    is_cpu_bound,
    is_disk_bound,
    is_gil_bound,
    is_latency_bound,
    is_memory_short,
    is_network_bound,
)
from tests.builders.report import MB, NAP, NETWORK, PIPE, QUEUE, gil_threads, look, task

SETTINGS = DEFAULT_HOST_SETTINGS


class TestMemoryPressure:
    def test_speaks_where_memory_stalls_and_pages_are_fetched_again(self) -> None:
        worker = task(0.3, state="D", sleeps_in="folio_wait_bit_common")
        short = look(workers=(worker,), major_faults_per_second=400.0, memory_stalled_ratio=0.4)

        assert is_memory_short([short], SETTINGS)

    def test_speaks_where_dropped_pages_are_read_again(self) -> None:
        thrashes = look(
            workers=(task(0.3),), major_faults_per_second=9_000.0,
            memory_stalled_ratio=0.006, refaults_per_second=2_655.0,
        )  # fmt: skip

        assert is_memory_short([thrashes], SETTINGS)

    def test_is_silent_where_a_neighbour_stalls(self) -> None:
        assert not is_memory_short([look(workers=(task(1.0),), memory_stalled_ratio=0.4)], SETTINGS)

    def test_is_silent_where_pages_come_for_the_first_time(self) -> None:
        mapped = look(
            workers=(task(0.47),), major_faults_per_second=11_403.0, refaults_per_second=183.0
        )

        assert not is_memory_short([mapped], SETTINGS)

    def test_is_silent_where_the_kernel_does_not_count_stalls(self) -> None:
        unknown = look(major_faults_per_second=400.0, memory_stalled_ratio=None)

        assert not is_memory_short([unknown], SETTINGS)


class TestGilBound:
    def test_speaks_of_threads_that_share_one_core_by_turns(self) -> None:
        assert is_gil_bound([look(threads=gil_threads(3))], SETTINGS)

    def test_speaks_where_others_load_the_machine(self) -> None:
        threads = tuple(task(0.61, 0.45, 100.0, QUEUE) for _ in range(3))

        assert is_gil_bound([look(threads=threads)], SETTINGS)

    def test_speaks_of_a_thread_that_trains_beside_one_that_computes(self) -> None:
        main = task(0.6, 0.1, 340.0)

        assert is_gil_bound([look(main, threads=(task(0.65, 0.1, 340.0),))], SETTINGS)

    def test_is_silent_of_threads_that_never_wait_for_their_turn(self) -> None:
        threads = tuple(task(0.95, 0.6, 150.0, QUEUE) for _ in range(3))

        assert not is_gil_bound([look(threads=threads)], SETTINGS)

    def test_is_silent_of_one_thread_alone(self) -> None:
        assert not is_gil_bound([look(threads=(task(1.0, 0.1, 204.0),))], SETTINGS)

    def test_is_silent_of_threads_that_compute_side_by_side(self) -> None:
        assert not is_gil_bound([look(threads=(task(1.0, switches=3.0),) * 2)], SETTINGS)

    def test_is_silent_of_threads_that_receive(self) -> None:
        threads = (task(0.45, switches=300.0, sleeps_in=NETWORK),) * 2

        assert not is_gil_bound([look(threads=threads)], SETTINGS)

    def test_is_silent_of_a_pool_of_native_threads(self) -> None:
        assert not is_gil_bound([look(threads=(task(0.5, switches=4_000.0),) * 2)], SETTINGS)


class TestDiskBound:
    def test_speaks_of_reads_from_a_busy_disk(self) -> None:
        direct = look(workers=(task(0.25),), read_bytes_per_second=636 * MB, disk_busy_ratio=0.77)
        random = look(workers=(task(0.52),), read_bytes_per_second=52 * MB, disk_busy_ratio=0.67)

        assert is_disk_bound([direct], SETTINGS)
        assert is_disk_bound([random], SETTINGS)

    def test_speaks_of_pages_that_are_fetched(self) -> None:
        assert is_disk_bound([look(major_faults_per_second=11_403.0)], SETTINGS)

    def test_speaks_of_a_loader_that_sleeps_until_a_device_answers(self) -> None:
        unknown: dict[str, Any] = {"read_bytes_per_second": None, "disk_busy_ratio": None}
        asleep = look(workers=(task(0.2, state="D"),), **unknown)
        awake = look(workers=(task(0.2),), **unknown)

        assert is_disk_bound([awake, awake, asleep], SETTINGS)

    def test_speaks_of_another_users_reads_by_the_machines(self) -> None:
        reported: dict[str, Any] = {
            "read_bytes_per_second": None,
            "disk_read_bytes_per_second": 500 * MB,
        }
        asleep = look(workers=(task(0.9, state="D"),), disk_busy_ratio=0.7, **reported)
        awake = look(workers=(task(0.9),), disk_busy_ratio=0.7, **reported)

        assert is_disk_bound([asleep, awake, awake, awake, awake], SETTINGS)

    def test_is_silent_where_a_neighbour_keeps_the_disk_busy(self) -> None:
        neighbours = look(workers=(task(1.0),), disk_busy_ratio=0.9)

        assert not is_disk_bound([neighbours], SETTINGS)

    def test_is_silent_of_files_of_another_machine_beside_such_a_neighbour(self) -> None:
        """A task that waits for NFS is shown as one that waits for a device."""
        worker = task(0.02, state="D", sleeps_in="rpc_wait_bit_killable")
        remote = look(workers=(worker,), disk_busy_ratio=0.9)

        assert not is_disk_bound([remote], SETTINGS)
        assert is_network_bound([remote], SETTINGS)

    def test_is_silent_where_the_disk_has_time(self) -> None:
        cached = look(workers=(task(1.0),), read_bytes_per_second=30 * MB, disk_busy_ratio=0.1)

        assert not is_disk_bound([cached], SETTINGS)


class TestCpuBound:
    def test_speaks_of_workers_that_want_whole_cores(self) -> None:
        assert is_cpu_bound([look(workers=(task(1.0, 0.77),) * 4)], SETTINGS)
        assert is_cpu_bound([look(workers=(task(1.01, 0.09),))], SETTINGS)

    def test_speaks_beside_helpers_that_do_nothing(self) -> None:
        helper = task(0.0, sleeps_in=PIPE)

        assert is_cpu_bound([look(workers=(task(1.0), helper, helper))], SETTINGS)

    def test_speaks_of_a_thread_that_trains_and_makes_its_batches(self) -> None:
        assert is_cpu_bound([look(task(0.78, 0.06), waiting=0.78)], SETTINGS)

    def test_speaks_of_one_that_seldom_waits_and_was_seen_at_it(self) -> None:
        assert is_cpu_bound([look(task(0.35), waiting=0.3)], SETTINGS)

    def test_is_silent_of_workers_that_wait(self) -> None:
        assert not is_cpu_bound([look(workers=(task(0.52), task(0.25)))], SETTINGS)

    def test_is_silent_of_a_thread_that_is_kept_awake_in_its_steps(self) -> None:
        spins = look(task(0.7, sleeps_in=QUEUE), waiting=0.3, workers=(task(0.0, sleeps_in=NAP),))

        assert not is_cpu_bound([spins], SETTINGS)

    def test_is_silent_of_threads_that_share_pythons_lock(self) -> None:
        threads = tuple(task(0.82, 0.45, 150.0, QUEUE) for _ in range(2))

        assert not is_cpu_bound([look(threads=threads)], SETTINGS)


class TestNetworkBound:
    def test_speaks_of_a_loader_that_receives(self) -> None:
        assert is_network_bound([look(workers=(task(0.02, sleeps_in=NETWORK),))], SETTINGS)

    def test_is_silent_of_one_that_waits_for_a_pipe(self) -> None:
        assert not is_network_bound([look(workers=(task(0.02, sleeps_in=PIPE),))], SETTINGS)


class TestLatencyBound:
    def test_speaks_of_a_loader_that_sleeps(self) -> None:
        assert is_latency_bound([look(workers=(task(0.02, sleeps_in=NAP),))], SETTINGS)
        assert is_latency_bound([look(threads=(task(0.02, sleeps_in=NAP),))], SETTINGS)
        assert is_latency_bound([look(task(0.02, sleeps_in=NAP))], SETTINGS)

    def test_speaks_where_most_of_the_last_looks_saw_it_asleep(self) -> None:
        asleep, awake = (look(workers=(one,)) for one in (task(0.2, sleeps_in=NAP), task(0.2)))

        assert is_latency_bound([asleep, asleep, awake], SETTINGS)
        assert not is_latency_bound([awake, awake, asleep], SETTINGS)

    def test_remembers_a_thread_that_trains_where_the_last_looks_fell_into_its_steps(self) -> None:
        asleep = look(task(0.02, sleeps_in=NAP))
        in_step = look(TaskSample(0.02, 0.0))

        assert is_latency_bound([asleep, *[in_step] * 6], SETTINGS)

    def test_is_silent_where_the_kernel_does_not_say_where(self) -> None:
        assert not is_latency_bound([look(workers=(task(0.02, state="S"),))], SETTINGS)
