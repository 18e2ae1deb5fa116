"""Tests of the thresholds."""

from __future__ import annotations

import pytest

from gpumon.core.settings.detector import (
    DEFAULT_SETTINGS,
    AdviceSettings,
    DetectorSettings,
    FillSettings,
)
from gpumon.core.settings.threshold import Threshold, Unit, thresholds_of
from gpumon.errors import UsageError

THRESHOLDS = {one.name: one for one in thresholds_of(DEFAULT_SETTINGS)}


def altered(name: str, value: float) -> DetectorSettings:
    """The default settings with one change."""
    group, _, field = name.rpartition(".")
    if not group:
        return DetectorSettings(**{field: value})  # type: ignore[arg-type]
    of_group = type(getattr(DEFAULT_SETTINGS, group))(**{field: value})
    return DetectorSettings(**{group: of_group})


class TestEachThreshold:
    @pytest.mark.parametrize("one", THRESHOLDS.values(), ids=THRESHOLDS)
    def test_has_an_origin_and_refuses_values_out_of_range(self, one: Threshold) -> None:
        assert one.origin.startswith(("ours: ", "XProf ", "NVIDIA's guide "))
        for value in (-0.1, 1.001) if one.unit is Unit.SHARE else (0, -1):
            with pytest.raises(UsageError, match=rf"^{one.name.rpartition('.')[2]} must be"):
                altered(one.name, value)

    def test_is_declared_by_every_number(self) -> None:
        for settings in (DetectorSettings, FillSettings, AdviceSettings):
            kinds = settings.__annotations__
            numbers = {name for name, kind in kinds.items() if kind in ("int", "float")}

            assert numbers <= {one.name for one in thresholds_of(settings())}

    def test_has_the_name_of_its_group_and_its_value(self) -> None:
        settings = DetectorSettings(fill=FillSettings(sm_active_below=0.2), lost_share=0.1)

        values = {one.name: one.value for one in thresholds_of(settings)}
        assert (values["fill.sm_active_below"], values["lost_share"]) == (0.2, 0.1)


def test_bursts_are_above_activity() -> None:
    with pytest.raises(UsageError, match=r"active_above.*burst_above"):
        DetectorSettings(active_above=0.5)
