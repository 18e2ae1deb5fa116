"""Two users and one GPU, told one second at a time: who trains on it, and who only says so."""

from __future__ import annotations

from gpumon.core.sample import ProcessSample
from gpumon.core.state import MonitorState
from tests.builders_story import WAIT, Story

ADA, STRANGER = 1000, 65_534
ADAS_PID, STRANGERS_PID = 42, 66

ADAS_PROCESS = ProcessSample(ADAS_PID, None, uid=ADA)


def training(story: Story, key: str = "train", *, uid: int = ADA, pid: int = ADAS_PID) -> None:
    """A training of that user that names GPU 0."""
    story.ring(key, pid=pid, job=f"job of {key}", uid=uid)


def stranger(story: Story, key: str = "stranger") -> None:
    """A ring of somebody who computes nowhere and names GPU 0."""
    training(story, key, uid=STRANGER, pid=STRANGERS_PID)


def starve(story: Story, *levels: float, key: str = "stranger") -> MonitorState:
    """Seconds in which that run says that it waits for input."""
    states = [story.pass_second(level, phases=[(0.0, WAIT)], key=key) for level in levels]
    return states[-1]
