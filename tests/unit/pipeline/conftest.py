"""Stories of a monitor with which many tests begin."""

from __future__ import annotations

import pytest

from tests.builders.monitor import STEP, Story


@pytest.fixture
def story() -> Story:
    """Two GPUs without work."""
    return Story()


@pytest.fixture
def training(story: Story) -> Story:
    """A run that has worked on GPU 0 for a second, and is in its step."""
    story.ring()
    story.pass_second(1.0, phases=[(0.0, STEP)])
    return story
