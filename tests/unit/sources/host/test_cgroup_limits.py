"""Tests of cgroup limits, in both versions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpumon.sources.host.cgroup_limits import CgroupLimits
from gpumon.sources.host.kept_files import KeptFiles
from tests.builders.time import s

PID = 7


class Cgroups:
    """A made-up machine: what process 7 belongs to, and what the folders of its cgroups hold."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.root = folder / "proc", folder / "cgroup"
        (self.proc / str(PID)).mkdir(parents=True)
        self.root.mkdir()

    def belongs(self, *lines: str) -> None:
        (self.proc / str(PID) / "cgroup").write_text("\n".join(lines) + "\n")

    def holds(self, path: str, **texts: str) -> None:
        folder = self.root / path.lstrip("/")
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in {"cpu_stat": "", **texts}.items():
            (folder / name.replace("_", ".", 1)).write_text(text)

    def limits(self) -> CgroupLimits:
        return CgroupLimits(PID, KeptFiles(), str(self.proc), str(self.root))


@pytest.fixture
def cgroups(tmp_path: Path) -> Cgroups:
    return Cgroups(tmp_path)


class TestAQuota:
    def test_may_be_of_version_1_next_to_version_2(self, cgroups: Cgroups) -> None:
        cgroups.belongs("3:cpu,cpuacct:/job", "0::/job")
        cgroups.holds("cpu/job", **{"cpu_cfs_quota_us": "300000", "cpu_cfs_period_us": "100000"})
        cgroups.holds("unified/job", memory_pressure="some avg10=0.00 total=5\n")
        limits = cgroups.limits()
        limits.read(s(1))

        assert limits.quota_cores == 3.0

    def test_is_the_smallest_of_all_levels(self, cgroups: Cgroups) -> None:
        cgroups.belongs("0::/users/anna/job")
        cgroups.holds("/users/anna/job", cpu_max="800000 100000")
        cgroups.holds("/users/anna", cpu_max="200000 100000")
        cgroups.holds("/users", cpu_max="max 100000")
        limits = cgroups.limits()
        limits.read(s(1))

        assert limits.quota_cores == 2.0

    @pytest.mark.parametrize("line", ["0::/job", "1:cpu:/job", "0::/../../outside", "nonsense", ""])
    def test_that_is_not_visible_is_none(self, cgroups: Cgroups, line: str) -> None:
        cgroups.belongs(line)
        limits = cgroups.limits()
        limits.read(s(1))

        assert (limits.quota_cores, limits.throttled_ratio) == (None, None)
        assert limits.stalled_ratio is None


class TestThrottling:
    def test_is_a_ratio_of_the_time_since_the_last_read(self, cgroups: Cgroups) -> None:
        cgroups.belongs("0::/job")
        cgroups.holds("/job", cpu_stat="usage_usec 9\nthrottled_usec 1000000\n")
        limits = cgroups.limits()
        limits.read(s(10))
        first = limits.throttled_ratio
        cgroups.holds("/job", cpu_stat="usage_usec 9\nthrottled_usec 1500000\n")
        limits.read(s(12))

        assert (first, limits.throttled_ratio) == (None, 0.25)

    def test_of_version_1_is_in_nanoseconds(self, cgroups: Cgroups) -> None:
        cgroups.belongs("1:cpu:/job")
        cgroups.holds("cpu/job", cpu_stat="nr_periods 3\nthrottled_time 1000\n")
        limits = cgroups.limits()
        limits.read(s(1))
        cgroups.holds("cpu/job", cpu_stat=f"nr_periods 3\nthrottled_time {s(1) + 1000}\n")
        limits.read(s(3))

        assert limits.throttled_ratio == 0.5

    def test_of_memory_is_that_of_the_innermost_cgroup(self, cgroups: Cgroups) -> None:
        cgroups.belongs("0::/job")
        for at_s, total_us in ((1, 0), (2, 400_000)):
            cgroups.holds("/job", memory_pressure=f"some avg10=9 total={total_us}\nfull total=1\n")
            if at_s == 1:
                limits = cgroups.limits()
            limits.read(s(at_s))

        assert limits.stalled_ratio == pytest.approx(0.4)

    def test_counts_pages_that_were_dropped_and_read_again(self, cgroups: Cgroups) -> None:
        cgroups.belongs("0::/", "4:memory:/job")
        stat = "cache 1\nworkingset_refault_anon {}\nworkingset_refault_file {}\n"
        cgroups.holds("memory/job", memory_stat=stat.format(0, 100))
        limits = cgroups.limits()
        limits.read(s(1))
        cgroups.holds("memory/job", memory_stat=stat.format(500, 1_600))
        limits.read(s(3))

        assert limits.refaults_per_second == pytest.approx(1_000.0)


class TestClosing:
    def test_closes_the_files_of_its_cgroups(self, cgroups: Cgroups) -> None:
        cgroups.belongs("3:cpu,cpuacct:/job", "0::/job")
        cgroups.holds("cpu/job", cpu_stat="throttled_time 5\n")
        cgroups.holds("unified/job", memory_pressure="some avg10=0.00 total=5\n")
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208  a count
        limits = cgroups.limits()
        limits.read(s(1))
        opened = len(os.listdir("/proc/self/fd"))  # noqa: PTH208

        limits.close()

        assert opened > before
        assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
