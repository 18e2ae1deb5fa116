"""Stories of a monitor as many tests begin them."""

from __future__ import annotations

import pytest

from tests.builders.monitor import STEP, Story


@pytest.fixture
def story() -> Story:
    """Two GPUs, and nobody at work yet."""
    return Story()


@pytest.fixture
def training(story: Story) -> Story:
    """A training has worked on GPU 0 for a second, and is in its step."""
    story.ring()
    story.pass_second(1.0, phases=[(0.0, STEP)])
    return story
