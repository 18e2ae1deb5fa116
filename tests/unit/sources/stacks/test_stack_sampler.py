"""When the daemon takes stack samples, of whom, and at what cost."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest

from gpumon.core.sample import Device, Frame, GpuSample, ProcessSample
from gpumon.core.stacks.reading import StacksReading
from gpumon.core.stacks.stack import StackSample
from gpumon.sources.stacks.stack_sampler import MOST_CPU_RATIO, StackSampler, stacks_of
from tests.builders.time import HandClock, s
from tests.waiting import until

PID = 4000


class Reader:
    """Reads at once, and at a price."""

    def __init__(self, clock: HandClock, costs_s: float = 0.0) -> None:
        self.clock, self.costs_s = clock, costs_s
        self.cpu_seconds = 0.0
        self.pids: list[int] = []
        self.failures: list[StackSample] = []
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.raises: BaseException | None = None

    def read(self, pid: int) -> StackSample:
        self.pids.append(pid)
        self.may_go_on.wait(10)
        if self.raises is not None:
            raise self.raises
        self.cpu_seconds += self.costs_s
        if self.failures:
            return self.failures.pop(0)
        return StackSample(self.clock.now_ns, self.clock.now_ns, pid)


class Machine:
    """A sampler whose GPUs idle or work, tick by tick."""

    def __init__(self, costs_s: float = 0.0) -> None:
        self.clock = HandClock()
        self.reader = Reader(self.clock, costs_s)
        self.refused: dict[int, str] = {}
        self.checks = 0
        self.sampler = StackSampler(self.reader, self.clock, self._may_read)
        self.samples: list[tuple[tuple[str, ...], StackSample]] = []
        self.waits = True

    def _may_read(self, process: ProcessSample) -> str | None:
        self.checks += 1
        return self.refused.get(process.pid)

    def tick(
        self,
        *gpus: tuple[float | None, tuple[int, ...]],
        after_s: float = 1.0,
        tagged: Collection[int] = (),
        uid: int = 0,
        **process: Any,
    ) -> StacksReading:
        """The present ratio of each GPU, and the processes on it."""
        self.clock.pass_seconds(after_s)
        samples = tuple(
            GpuSample(
                device=Device(uuid=f"GPU-{k}", index=k),
                processes=tuple(ProcessSample(pid, None, uid=uid, **process) for pid in pids),
            )
            for k, (_, pids) in enumerate(gpus)
        )
        ratios = {f"GPU-{k}": ratio for k, (ratio, _) in enumerate(gpus)}
        present = tuple((uuid, ratio) for uuid, ratio in ratios.items() if ratio is not None)
        frame = Frame(taken_at_ns=self.clock.now_ns, gpus=samples, present_ratios=present)
        self.sampler.request_due(frame, tagged)
        if not self.waits:
            return self.sampler.collect()
        new = self._collected()
        self.samples += new
        return StacksReading(tuple(new))

    def _collected(self) -> list[tuple[tuple[str, ...], StackSample]]:
        samples: list[tuple[tuple[str, ...], StackSample]] = []

        def are_all_there() -> bool:
            reading = self.sampler.collect()
            samples.extend(reading.samples)
            return not reading.pending_from_ns

        assert until(are_all_there, every_s=0.0005)
        return samples


@contextmanager
def machine(**more: Any) -> Iterator[Machine]:
    made = Machine(**more)
    try:
        yield made
    finally:
        made.sampler.close()


IDLE, BUSY = (0.0, (PID,)), (1.0, (PID,))


class TestASample:
    def test_is_taken_at_once_when_a_gpu_falls_idle(self) -> None:
        with machine() as one:
            one.tick(BUSY)
            one.tick(BUSY, after_s=3)
            one.samples.clear()
            one.tick(IDLE)

            assert [(uuids, sample.pid) for uuids, sample in one.samples] == [(("GPU-0",), PID)]
            assert one.samples[0][1].owner_uid == 0

    def test_comes_every_two_to_ten_seconds_of_a_long_pause(self) -> None:
        with machine() as one:
            for _ in range(120):
                one.tick(IDLE)

            times_s = [sample.start_ns / s(1) for _, sample in one.samples]
            apart_s = [later - sooner for sooner, later in pairwise(times_s)]
            assert min(apart_s) >= 2
            assert max(apart_s) <= 11
            assert 12 < len(times_s) < 24

    def test_needs_no_look_at_the_gpu_while_none_may_come(self) -> None:
        with machine() as one:
            one.tick((0.0, ()))
            alone = one.sampler.can_sample(one.clock.now_ns)
            one.tick(BUSY)  # sampled at once: how it works
            sampled = one.sampler.can_sample(one.clock.now_ns + s(1))
            later = one.sampler.can_sample(one.clock.now_ns + s(2))

            assert (alone, sampled, later) == (False, False, True)

    def test_needs_no_look_at_the_gpu_without_budget(self) -> None:
        with machine(costs_s=1.0) as one:
            one.tick(IDLE)

            assert not one.sampler.can_sample(one.clock.now_ns + s(3))

    def test_comes_at_various_times_of_pauses_that_are_alike(self) -> None:
        with machine() as one:
            at_s: Counter[float] = Counter()
            for _ in range(200):
                for quarter in range(16):
                    one.samples.clear()
                    one.tick(IDLE if quarter < 6 else BUSY, after_s=0.25)
                    at_s[quarter / 4] += len(one.samples)

            assert sum(at_s[quarter / 4] for quarter in range(6)) == 200  # one each
            assert all(at_s[quarter / 4] > 10 for quarter in range(5))

    def test_is_taken_of_one_process_every_two_seconds_at_most(self) -> None:
        with machine() as one:
            for _ in range(60):
                one.tick(IDLE, after_s=0.5)
                one.tick(BUSY, after_s=0.5)

            assert len(one.samples) <= 31

    def test_is_seldom_taken_while_the_gpu_works(self) -> None:
        with machine() as one:
            for _ in range(300):
                one.tick(BUSY)

            assert len(one.samples) == 5

    def test_serves_all_gpus_of_its_process(self) -> None:
        with machine() as one:
            reading = one.tick(IDLE, IDLE)

            assert [uuids for uuids, _ in reading.samples] == [("GPU-0", "GPU-1")]

    def test_that_met_a_change_is_taken_once_more(self) -> None:
        with machine() as one:
            failed = StackSample(0, 0, PID, error="it changed", is_retryable=True)
            one.reader.failures = [failed, failed, failed]
            one.tick(IDLE)

            assert one.reader.pids == [PID, PID]
            assert one.sampler.collector_state().errors_total == 1
            assert one.sampler.collector_state().message is None

    def test_that_fails_again_and_again_is_reported(self) -> None:
        with machine() as one:
            one.reader.failures = [StackSample(0, 0, PID, error="it hangs")] * 3
            for _ in range(9):
                one.tick(IDLE)

            assert one.sampler.collector_state().errors_total == 3
            assert one.sampler.collector_state().message == "it hangs"
            for _ in range(70):
                one.tick(IDLE)
            assert one.sampler.collector_state().message is None


class TestNoSampleIsTaken:
    @pytest.mark.parametrize(
        "gpu",
        [
            (0.0, ()),  # no process
            (0.0, (PID, PID + 1)),  # whose work the GPU waits for is unknown
            (None, (PID,)),  # no answer
        ],
    )
    def test_of_a_gpu_without_one_process(self, gpu: tuple[float | None, tuple[int, ...]]) -> None:
        with machine() as one:
            assert one.tick(gpu).samples == ()

    def test_of_a_process_that_tags_its_phases(self) -> None:
        with machine() as one:
            assert one.tick(IDLE, tagged={PID}).samples == ()

    def test_of_a_server_for_other_processes(self) -> None:
        with machine() as one:
            assert one.tick(IDLE, serves_others=True).samples == ()

    def test_of_a_process_that_may_not_be_read(self) -> None:
        with machine() as one:
            one.refused[PID] = "it may not"
            for _ in range(30):
                one.tick(IDLE)

            assert one.samples == []
            assert one.checks == 1  # again after a minute
            assert one.sampler.collector_state().message == "it may not"
            assert one.sampler.collector_state().success
            one.tick((0.0, ()), after_s=10)
            assert one.sampler.collector_state().message is None  # it has left the GPU

    def test_beyond_the_budget(self) -> None:
        with machine(costs_s=0.03) as one:
            for _ in range(600):
                one.tick(*((0.0, (PID + k,)) for k in range(8)))

            allowed_s = 0.1 + 600 * MOST_CPU_RATIO
            assert 0.9 * allowed_s < one.reader.cpu_seconds <= allowed_s
            taken = [one.reader.pids.count(PID + k) for k in range(8)]
            assert max(taken) - min(taken) <= 2  # in turns

    def test_beyond_what_was_saved_up_while_nothing_idled(self) -> None:
        with machine(costs_s=0.03) as one:
            for _ in range(100):
                one.tick(BUSY, after_s=60)
            one.reader.pids.clear()
            for _ in range(60):
                one.tick(*((0.0, (PID + k,)) for k in range(8)))

            assert one.reader.cpu_seconds <= 0.5 + 160 * 60 * MOST_CPU_RATIO
            assert len(one.reader.pids) * 0.03 <= 0.5 + 61 * MOST_CPU_RATIO + 0.03


class TestTrouble:
    def test_a_reader_that_raises_ends_nothing(self) -> None:
        with machine() as one:
            one.reader.raises = ValueError("a bug")
            one.tick(IDLE)
            one.reader.raises = None
            one.tick(IDLE, after_s=3)

            first, second = (sample for _, sample in one.samples)
            assert first.error is not None
            assert "ValueError" in first.error
            assert second.error is None

    def test_a_sample_that_takes_long_holds_nothing_up_for_more_than_three_seconds(self) -> None:
        with machine() as one:
            one.waits = False
            one.reader.may_go_on.clear()
            began_ns = one.clock.now_ns + s(1)
            pending = [one.tick(IDLE).pending_from_ns for _ in range(10)]
            one.reader.may_go_on.set()

            assert pending[:4] == [{"GPU-0": began_ns}] * 4
            assert pending[4:] == [{}] * 6

    def test_no_more_are_requested_while_one_takes_long(self) -> None:
        with machine() as one:
            one.waits = False
            one.reader.may_go_on.clear()
            one.tick(*((0.0, (PID + k,)) for k in range(16)))
            assert until(lambda: one.reader.pids != [])
            for _ in range(10):
                one.tick(*((0.0, (PID + k,)) for k in range(16)))
            one.clock.pass_seconds(10)
            one.reader.may_go_on.set()
            one._collected()

            assert len(one.reader.pids) == 1  # the others are out of date
            assert one.sampler.collector_state().errors_total == 0

    def test_a_process_that_cannot_be_read_is_seldom_tried_again(self) -> None:
        with machine() as one:
            one.reader.failures = [StackSample(0, 0, PID, error="it hangs")] * 100
            for _ in range(600):
                one.tick(IDLE)

            assert 10 <= len(one.reader.pids) <= 15

    def test_its_end_waits_for_one_sample_alone(self) -> None:
        with machine() as one:
            one.waits = False
            one.reader.may_go_on.clear()
            one.tick(*((0.0, (PID + k,)) for k in range(4)))
            assert until(lambda: one.reader.pids != [])
            closing = threading.Thread(target=one.sampler.close)
            closing.start()
            assert until(lambda: one.sampler.is_closing)
            one.reader.may_go_on.set()
            closing.join(5)

            assert len(one.reader.pids) == 1

    def test_a_number_that_another_user_got_is_asked_again(self) -> None:
        with machine() as one:
            one.tick(IDLE)
            one.tick(IDLE, uid=1000)

            assert one.checks == 2


class TestTheRule:
    def rule(
        self,
        process_uid: int | None,
        uids: Collection[int] | None = (1000,),
        opts_out: bool | None = False,
        refused: str | None = None,
    ) -> str | None:
        rule = stacks_of(uids, lambda pid: refused, lambda pid: opts_out)
        return rule(ProcessSample(PID, None, uid=process_uid))

    def test_permits_the_processes_of_its_users(self) -> None:
        assert self.rule(1000) is None
        assert self.rule(1001, None) is None

    @pytest.mark.parametrize("uid", [0, 1001])
    def test_refuses_those_of_others(self, uid: int) -> None:
        assert "its user is not among" in str(self.rule(uid))

    @pytest.mark.parametrize("opts_out", [True, None])
    def test_refuses_who_does_not_want_it_or_hides_its_environment(
        self, opts_out: bool | None
    ) -> None:
        assert "its environment" in str(self.rule(1000, opts_out=opts_out))

    @pytest.mark.parametrize("uids", [(1000,), None])
    def test_refuses_unknown_users_even_where_every_user_is_read(
        self, uids: tuple[int, ...] | None
    ) -> None:
        # In a container, the driver's pid may be that of another process here.
        assert "its user is unknown" in str(self.rule(None, uids))

    def test_refuses_what_the_kernel_refuses(self) -> None:
        assert self.rule(1000, refused="no") == "no"
