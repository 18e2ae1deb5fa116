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

THRESHOLDS = tuple(thresholds_of(DEFAULT_SETTINGS))
NUMBERS = {"int", "float"}
ORIGINS = ("ours:", "XProf ", "NVIDIA's guide ")


def named(name: str, settings: DetectorSettings = DEFAULT_SETTINGS) -> Threshold:
    return next(one for one in thresholds_of(settings) if one.name == name)


def altered(name: str, value: float) -> DetectorSettings:
    """The default settings with one change."""
    group, _, field = name.rpartition(".")
    if not group:
        return DetectorSettings(**{field: value})  # type: ignore[arg-type]
    of_group = type(getattr(DEFAULT_SETTINGS, group))(**{field: value})
    return DetectorSettings(**{group: of_group})


class TestEachThreshold:
    @pytest.mark.parametrize("one", THRESHOLDS, ids=lambda one: one.name)
    def test_has_a_sentence_and_an_origin(self, one: Threshold) -> None:
        assert one.what.endswith(".")
        assert one.origin.startswith(ORIGINS)
        assert len(one.origin) > len("ours: ")

    @pytest.mark.parametrize("one", THRESHOLDS, ids=lambda one: one.name)
    def test_refuses_values_out_of_range(self, one: Threshold) -> None:
        wrong = (-0.1, 1.001) if one.unit is Unit.SHARE else (0, -1)

        for value in wrong:
            with pytest.raises(UsageError, match=rf"^{one.name.rpartition('.')[2]} must be"):
                altered(one.name, value)

    def test_has_the_name_of_its_group_and_its_value(self) -> None:
        settings = DetectorSettings(fill=FillSettings(sm_active_below=0.2), lost_share=0.1)

        assert named("fill.sm_active_below", settings).value == 0.2
        assert named("lost_share", settings).value == 0.1


class TestDetectorSettings:
    def test_have_every_threshold_declared(self) -> None:
        for settings in (DetectorSettings, FillSettings, AdviceSettings):
            numbers = [name for name, kind in settings.__annotations__.items() if kind in NUMBERS]
            declared = [one.name for one in thresholds_of(settings())]

            assert [name for name in numbers if name not in declared] == []

    def test_refuse_bursts_below_activity(self) -> None:
        with pytest.raises(UsageError, match=r"active_above.*burst_above"):
            DetectorSettings(active_above=0.5)
