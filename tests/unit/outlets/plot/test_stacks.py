"""Pictures of stacks, however few or many there are."""

from __future__ import annotations

import pytest

from gpumon.core.stacks.sample_join import SampleKind
from gpumon.core.stacks.stack import ProcessStack, StackFrame, StackSample, ThreadStack
from gpumon.core.stacks.stack_counts import StackCounts
from tests.needs import missing

try:
    from gpumon.outlets.plot.stacks import stack_figure, stack_picture
except ImportError:
    missing("matplotlib is not installed")

MAIN = StackFrame("main", "/job/train.py", 41)


def counts(*stacks: tuple[StackFrame, ...]) -> StackCounts:
    counted = StackCounts()
    for frames in stacks:
        process = ProcessStack(7, None, "python train.py", (ThreadStack(7, frames),))
        counted.add(SampleKind.IDLE, StackSample(0, 1, 7, (process,)))
    return counted


def shown(counted: StackCounts) -> list[str]:
    """The names of the calls that are drawn."""
    return [text.get_text() for panel in stack_figure(counted, "").axes for text in panel.texts]


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
@pytest.mark.parametrize(
    "counted",
    [
        counts(),
        counts((MAIN,)),
        counts(*((StackFrame(f"f{n}", "/job/train.py", n), MAIN) for n in range(300))),
        counts(tuple(StackFrame(f"f{n}", "/job/train.py", n) for n in range(300))),
        counts((StackFrame("<b>\x1b[31m$x^{$", "/job/<i>&.py", 1), MAIN)),
    ],
    ids=["none", "one", "300 places", "300 deep", "markup"],
)
def test_each_is_a_picture(counted: StackCounts, kind: str) -> None:
    head = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[kind]

    assert stack_picture(counted, "GPU 0 was idle for 2 of 3 s.", kind).startswith(head)


def test_the_callers_of_300_places_are_named() -> None:
    many = counts(*((StackFrame(f"f{n}", "/job/train.py", n), MAIN) for n in range(300)))

    assert "main (train.py)" in shown(many)
