"""Tests of when to open NVML again, and when only a new process helps."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.errors import RestartNeededError, SourceUnavailableError
from gpumon.sources.nvml.codes import unavailable
from gpumon.sources.nvml.reopening import Reopening, library_was_replaced
from tests.builders.time import s

TIMEOUT, LOST, MISMATCH, UNKNOWN = 10, 15, 18, 999
MAPPED = "7f00-7f01 r-xp 00000000 08:01 4711    {}\n"


class Driver:
    """A driver that the test opens, on a clock that the test moves."""

    def __init__(self, maps: str = "") -> None:
        self.now_ns = s(100)
        self.reopening = Reopening(lambda: self.now_ns, lambda: maps)

    def fails(self, code: int) -> SourceUnavailableError:
        return self.reopening.failed(unavailable(code))

    def may_be_tried(self) -> bool:
        try:
            self.reopening.check()
        except SourceUnavailableError:
            return False
        return True

    def waits_s(self) -> float:
        """After one more failure, until it may be tried again."""
        self.fails(UNKNOWN)
        began_ns = self.now_ns
        while not self.may_be_tried():
            self.now_ns += s(0.1)
        return (self.now_ns - began_ns) / s(1)


class TestOpeningAgain:
    def test_waits_half_a_second_then_up_to_four(self) -> None:
        driver = Driver()

        waits = [driver.waits_s() for _ in range(6)]

        assert waits == pytest.approx([0.5, 1, 2, 4, 4, 4], abs=0.1)


class TestFailuresOfEveryGpu:
    @pytest.mark.parametrize(
        ("codes", "at_once", "after_ten_s"),
        [
            ([UNKNOWN, LOST], UNKNOWN, UNKNOWN),
            ([LOST, LOST], None, LOST),
            ([TIMEOUT, LOST], None, TIMEOUT),
            ([UNKNOWN], None, None),  # of two GPUs
        ],
    )
    def test_close_nvml(
        self, codes: list[int], at_once: int | None, after_ten_s: int | None
    ) -> None:
        reopening = Driver().reopening

        first, early, last = (reopening.fatal_code(codes, 2, s(at_s)) for at_s in (100, 109, 110))

        assert (first, early, last) == (at_once, at_once, after_ten_s)

    def test_count_from_0_after_a_gpu_was_read_or_nvml_was_reopened(self) -> None:
        driver = Driver()
        reopening = driver.reopening
        for at_s, restart in ((100, reopening.was_read), (200, lambda: driver.fails(UNKNOWN))):
            reopening.fatal_code([LOST], 1, s(at_s))
            restart()
            assert reopening.fatal_code([LOST], 1, s(at_s + 11)) is None

        reopening.was_read()
        assert driver.waits_s() == pytest.approx(0.5, abs=0.1)


class TestADriverThatWasReplaced:
    def test_while_in_use_needs_a_new_process_after_a_while(self) -> None:
        driver = Driver()
        driver.reopening.opened()
        troubles = []
        for _ in range(3):
            troubles.append(driver.fails(MISMATCH))
            driver.now_ns += s(3)

        assert [isinstance(one, RestartNeededError) for one in troubles] == [False, False, True]

    def test_before_it_ever_worked_needs_no_new_process(self) -> None:
        driver = Driver()
        for _ in range(60):
            trouble = driver.fails(MISMATCH)
            driver.now_ns += s(60)

        assert not isinstance(trouble, RestartNeededError)
        assert str(trouble) == str(unavailable(MISMATCH))

    def test_is_forgotten_after_another_failure(self) -> None:
        driver = Driver()
        driver.reopening.opened()
        driver.fails(MISMATCH)
        driver.now_ns += s(6)
        driver.fails(9)

        assert not isinstance(driver.fails(MISMATCH), RestartNeededError)


class TestALibraryOfAnotherVersion:
    @pytest.mark.parametrize(
        ("container", "remedy", "not_shown"),
        [
            (None, "reboot or reload the driver", "container"),
            ("Docker (/.dockerenv)", "recreate this container", "reboot"),
        ],
        ids=["on the machine itself", "in a container"],
    )
    def test_has_a_remedy_for_the_host_or_the_container(
        self,
        monkeypatch: pytest.MonkeyPatch,
        container: str | None,
        remedy: str,
        not_shown: str,
    ) -> None:
        monkeypatch.setattr("gpumon.sources.nvml.codes.container_words", lambda _: container)
        replaced = Driver(MAPPED.format("/usr/lib/libnvidia-ml.so.580.95 (deleted)"))

        for trouble in (unavailable(MISMATCH), replaced.fails(MISMATCH)):
            assert remedy in str(trouble)
            assert not_shown not in str(trouble)


class TestALibrary:
    @pytest.mark.parametrize(
        ("mapped", "named", "was_replaced"),
        [
            pytest.param("libnvidia-ml.so.580.95", "libnvidia-ml.so.580.95", False, id="there"),
            pytest.param("libnvidia-ml.so.580.95", "libnvidia-ml.so.590.10", True, id="another"),
            pytest.param("libnvidia-ml.so.1 (deleted)", None, True, id="removed"),
            pytest.param("libc.so.6", None, False, id="never mapped"),
        ],
    )
    def test_was_replaced_if_its_name_leads_to_another_file(
        self, tmp_path: Path, mapped: str, named: str | None, *, was_replaced: bool
    ) -> None:
        if named is not None:
            (tmp_path / named).touch()
            (tmp_path / "libnvidia-ml.so.1").symlink_to(named)
        maps = "00-01 r--p 00000000 00:00 0\n" + MAPPED.format(tmp_path / mapped)

        assert library_was_replaced(maps) is was_replaced
