"""Where things are in a picture: its width, its columns, and the time they show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gpumon.core.intervals import Interval
from gpumon.outlets.log_plot.time_axis import TimeAxis

WIDTH: Final = 980.0
MARGIN: Final = 20.0
LANE_LEFT: Final = 184.0
LANE_WIDTH: Final = 640.0
LANE_RIGHT: Final = LANE_LEFT + LANE_WIDTH
COLUMNS: Final = 1_280
"""Half a point each: one pixel of a PNG."""
COLUMN_WIDTH: Final = LANE_WIDTH / COLUMNS


@dataclass(frozen=True, slots=True)
class Frame:
    """Time to place, and the measures that depend on how much is shown.

    Attributes:
        axis: The time that is shown.
        lane_height: Height of a lane, in points.
        strip_height: Height of the strip beneath it; 0 where nothing is to be marked.
        patience_ns: How long a job may be inactive before it is over.
    """

    axis: TimeAxis
    lane_height: float
    strip_height: float
    patience_ns: int

    @property
    def span(self) -> Interval:
        """The time that is shown."""
        return Interval(self.axis.start_ns, self.axis.end_ns)

    def x(self, at_ns: float) -> float:
        """Where an instant is; one that is not shown, at the edge."""
        share = (at_ns - self.axis.start_ns) / (self.axis.end_ns - self.axis.start_ns)
        return LANE_LEFT + LANE_WIDTH * min(1.0, max(0.0, share))
