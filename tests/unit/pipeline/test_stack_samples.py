"""Stack samples in the monitor: joined to the driver samples of their time, however late."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.codecs.report_codec import decode_report, encode_report
from gpumon.core.phase import IdleCause
from gpumon.core.sample import BusySample, Device, Frame, GpuSample
from gpumon.core.stacks.reading import NO_STACKS, StacksReading
from gpumon.core.stacks.stack import ProcessStack, StackFrame, StackSample, ThreadStack
from gpumon.core.state import GpuState
from gpumon.outlets.text.report_text import render_report
from gpumon.pipeline.gpu_bindings import DeferredTick, GpuBindings
from gpumon.pipeline.state_report import report_of
from tests.builders.monitor import monitor, reading
from tests.builders.time import s
from tests.unit.outlets.report_lines import PLAIN

GPU, PID = Device(uuid="GPU-0", index=0), 42
LOADER = "/env/lib/python3.11/site-packages/torch/utils/data/dataloader.py"
IN_LOADER = (
    StackFrame("_BaseDataLoaderIter.__next__", LOADER, 700),
    StackFrame("train", "/home/ann/secret/train.py", 41),
    StackFrame("<module>", "/home/ann/secret/train.py", 50),
)
IN_STEP = (
    StackFrame("step", "/home/ann/secret/train.py", 30),
    StackFrame("train", "/home/ann/secret/train.py", 42),
    StackFrame("<module>", "/home/ann/secret/train.py", 50),
)


def sampled(at_s: float, frames: Sequence[StackFrame] = IN_LOADER) -> StackSample:
    process = ProcessStack(PID, 1, "python train.py", (ThreadStack(PID, tuple(frames)),))
    return StackSample(s(at_s), s(at_s + 0.02), PID, (process,))


def failed(at_s: float) -> StackSample:
    return StackSample(s(at_s), s(at_s + 0.02), PID, error="it may not be read")


class Watched:
    """A monitor whose GPU works in even seconds and idles in odd ones."""

    def __init__(self) -> None:
        self.second = 0
        self.monitor = monitor()

    def tick(self, stacks: StacksReading = NO_STACKS, *, seconds: int = 1) -> GpuState:
        """Drain that many seconds at once."""
        busy = []
        for _ in range(seconds):
            start_s, ratio = self.second, float(self.second % 2 == 0)
            busy += [
                BusySample(s(start_s + k / 4), s(start_s + (k + 1) / 4), ratio) for k in range(4)
            ]
            self.second += 1
        now_ns = s(self.second)
        frame = Frame(taken_at_ns=now_ns, gpus=(GpuSample(device=GPU, busy=tuple(busy)),))
        one = reading(now_ns, frame)._replace(stacks=stacks)
        self.state = self.monitor.ingest(one)
        totals = self.state.gpus[0].totals
        assert totals.busy_ns + totals.idle_total_ns + totals.pending_ns == totals.observed_ns
        return self.state.gpus[0]

    def text(self) -> str:
        """The report, as a client that may not see folders prints it."""
        received = decode_report(encode_report(report_of(self.state)))
        return " ".join(render_report(received, PLAIN).split())


def of(*samples: StackSample, pending_s: float | None = None) -> StacksReading:
    pending = {} if pending_s is None else {GPU.uuid: s(pending_s)}
    return StacksReading(tuple(((GPU.uuid,), sample) for sample in samples), pending)


def test_a_pause_whose_sample_came_first_takes_its_cause() -> None:
    watched = Watched()
    watched.tick()
    watched.tick(of(sampled(1.5)))

    assert watched.tick().totals.seen_ns == {IdleCause.INPUT_WAIT: s(1)}


def test_a_drain_waits_for_a_sample_that_is_being_taken() -> None:
    watched = Watched()
    watched.tick()
    held = watched.tick(of(pending_s=1.5), seconds=2)
    settled = watched.tick(of(sampled(1.5)))

    assert (held.totals.idle_total_ns, held.totals.pending_ns) == (0, s(1))
    assert settled.totals.seen_ns == {IdleCause.INPUT_WAIT: s(1)}


def test_a_sample_that_is_not_taken_after_all_holds_nothing_up() -> None:
    watched = Watched()
    watched.tick()
    watched.tick(of(pending_s=1.5), seconds=2)

    assert watched.tick(of(failed(1.5))).totals.idle_ns == {IdleCause.UNKNOWN: s(1)}


def test_one_that_comes_after_its_time_was_settled_changes_nothing() -> None:
    watched = Watched()
    watched.tick()
    watched.tick()
    watched.tick()
    watched.tick(of(sampled(1.5)))
    totals = watched.tick().totals

    assert (totals.idle_ns, totals.seen_ns) == ({IdleCause.UNKNOWN: s(2)}, {})


def test_the_report_names_the_line_and_no_folder() -> None:
    watched = Watched()
    for _ in range(12):
        watched.tick(of(sampled(watched.second + 0.5, IN_STEP)) if watched.second else NO_STACKS)
        watched.tick(of(sampled(watched.second + 0.5)))
    watched.tick()

    text = watched.text()

    assert watched.state.gpus[0].verdict.name.value == "starved"
    assert "waiting for input, as stack samples show in 10 of 10 sampled pauses (10 in all)" in text
    assert "DataLoader.__next__ (torch/utils/data/dataloader.py), called from train.py:41" in text
    assert "secret" not in text


class TestTheOwnerOfTheFiles:
    def owner_after(self, *uids: int | None) -> int | None:
        watched = Watched()
        watched.tick()
        for uid in uids:
            watched.tick(of(sampled(watched.second + 0.5)._replace(owner_uid=uid)))
            watched.tick()
        finding = watched.state.gpus[0].stacks
        assert finding is not None
        assert finding.idle_samples == len(uids)
        return finding.owner_uid

    def test_is_the_user_of_the_process(self) -> None:
        assert self.owner_after(1_000, 1_000) == 1_000

    def test_is_unknown_where_samples_are_of_two_users(self) -> None:
        assert self.owner_after(1_000, 1_001) is None
        assert self.owner_after(1_000, None) is None


def test_fewer_than_ten_agreeing_samples_promise_nothing() -> None:
    watched = Watched()
    for k in range(12):
        watched.tick()
        watched.tick(of(sampled(watched.second + 0.5)) if k < 9 else NO_STACKS)
    watched.tick()

    verdict = watched.state.gpus[0].verdict.name.value
    advice = report_of(watched.state).advice

    assert verdict == "starvation_suspected"
    assert watched.state.gpus[0].totals.starved_ns == s(9)
    assert advice[0].cause == "input_wait"
    assert advice[0].speedup_upper_bound is None


def test_ten_promise_what_they_saw() -> None:
    watched = Watched()
    for k in range(20):
        watched.tick()
        watched.tick(of(sampled(watched.second + 0.5)) if k < 10 else NO_STACKS)
    watched.tick()

    (input_advice,) = [one for one in report_of(watched.state).advice if one.cause == "input_wait"]

    assert watched.state.gpus[0].verdict.name.value == "starved"
    assert input_advice.speedup_upper_bound == 41 / 31


def test_the_next_job_has_places_of_its_own() -> None:
    watched = Watched()
    watched.tick()
    watched.tick(of(sampled(1.5)))
    first = watched.tick()
    for _ in range(70):
        watched.second += 1 - watched.second % 2  # an idle second
        watched.tick()
    watched.second += watched.second % 2
    watched.tick()
    watched.tick(of(sampled(watched.second + 0.5, IN_STEP)))
    later = watched.tick()

    assert first.stacks is not None
    assert first.stacks.places[0].caller == IN_LOADER[1]
    assert later.stacks is not None
    assert later.stacks.places[0].caller == IN_STEP[0]
    assert later.stacks.idle_samples == 1


@given(
    st.lists(st.tuples(st.integers(0, 3), st.one_of(st.none(), st.integers(0, 12))), max_size=40)
)
def test_no_driver_sample_is_lost_or_moved_while_stack_samples_are_awaited(
    ticks: list[tuple[int, int | None]],
) -> None:
    bindings, samples = GpuBindings(0.01), 0
    released: list[DeferredTick] = []
    for count, back_s in [*ticks, (0, None)]:
        busy = [BusySample(s(samples + k), s(samples + k + 1), 0.0) for k in range(count)]
        samples += count
        pending_ns = None if back_s is None else s(max(0, samples - back_s))
        released += bindings.release(DeferredTick(busy, None), pending_ns)

    starts_ns = [sample.start_ns for tick in released for sample in tick.busy]
    assert starts_ns == [s(number) for number in range(samples)]
    assert not bindings.is_open
