"""What is kept of a machine with runs has the totals, and the verdict, that its daemon reported."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.clock import NS_PER_S
from gpumon.core.diagnosis.verdict_rules import diagnose
from gpumon.core.phase import IdleCause, TrainingPhase
from tests.builders.monitor import SAVE, STEP, WAIT, Story
from tests.builders.store import Machine, store_in

MOST_LEFT_NS = 30_000_000
"""What is left of milliseconds, over all columns."""
COUNTERS = (
    "observed_ns", "busy_ns", "pending_ns", "in_use_ns", "in_use_busy_ns", "suspected_ns",
    "hidden_input_wait_ns", "low_ns", "high_ns", "irregular_ns", "first_input_wait_ns",
    "epoch_input_wait_ns", "validation_input_wait_ns", "hanging_ns",
)  # fmt: skip
MAPS = ("idle_ns", "input_wait_by_reason_ns", "may_be_less_ns", "may_be_more_ns", "seen_ns")

Second = tuple[float, Sequence[tuple[float, TrainingPhase]]]
"""How busy the GPU is, and the phases of the run that begin."""
SECOND = st.tuples(
    st.floats(0.0, 1.0),
    st.lists(st.tuples(st.floats(0.0, 0.99), st.sampled_from([WAIT, STEP, SAVE])), max_size=3),
)


def kept(story: Story, seconds: Sequence[Second], folder: Path) -> GpuTotals:
    """The totals that the next process of a daemon knows of these seconds."""
    store = store_in(folder)
    for level, phases in seconds:
        store.follow(story.pass_second(level, phases=sorted(phases) if story.rings else ()))
    store.close()
    later = Machine(store_in(folder))
    later.begin(story.second + 100.0)
    later.tick()
    earlier = later.store.earlier(0.0)
    later.store.close()
    assert earlier is not None
    return earlier.totals["GPU-0"]


def assert_alike(found: GpuTotals, real: GpuTotals) -> None:
    for name in COUNTERS:
        assert abs(getattr(found, name) - getattr(real, name)) <= MOST_LEFT_NS, name
    for name in MAPS:
        one, other = getattr(found, name), getattr(real, name)
        for key in {*one, *other}:
            assert abs(one.get(key, 0) - other.get(key, 0)) <= MOST_LEFT_NS, (name, key)
    assert found.pauses.count == real.pauses.count
    assert abs(found.pauses.total_ns - real.pauses.total_ns) <= MOST_LEFT_NS


@given(st.lists(SECOND, min_size=3, max_size=60), st.booleans(), st.sampled_from([1, 4]))
def test_kept_totals_are_those_of_the_daemon(
    seconds: Sequence[Second], has_run: bool, drained_every: int
) -> None:
    story = Story(drained_every=drained_every)
    if has_run:
        story.ring()
    with tempfile.TemporaryDirectory() as folder:
        found = kept(story, seconds, Path(folder))

    assert_alike(found, story.state.gpus[0].totals)


def test_a_starved_gpu_is_starved_after_a_restart(tmp_path: Path) -> None:
    story = Story()
    story.ring()
    waits = (0.3, [(0.0, STEP), (0.3, WAIT)])
    found = kept(story, [waits] * 60, tmp_path)

    real = story.state.gpus[0].totals
    assert_alike(found, real)
    assert found.idle_ns[IdleCause.INPUT_WAIT] > 20 * NS_PER_S
    assert diagnose(found).name is diagnose(real).name
    assert diagnose(found).lost_ratio == pytest.approx(diagnose(real).lost_ratio, abs=0.01)
