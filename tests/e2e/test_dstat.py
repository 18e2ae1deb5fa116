"""`--gpu` and `--gpu-stall` of dstat and dool, on a terminal, with a state file that changes."""

from __future__ import annotations

import csv
import itertools
import os
import re
import threading
from pathlib import Path

import pytest

from gpumon.cli.main import main as gpumon
from tests.builders.dstat import daemon
from tests.e2e.pty_terminal import Written, on_a_terminal
from tests.faults.faulty_machine import Machine
from tests.hosts_of_dstat import RealHost, real_host

pytestmark = [pytest.mark.dstat, pytest.mark.slow]

RED, YELLOW, GREEN = "\x1b[1;31m", "\x1b[1;33m", "\x1b[1;32m"
STARVED = {"busy": 0.4, "starved": 0.1, "suspected": 0.4}
HEALTHY = {"busy": 0.96, "starved": 0.02}
BOTH = ("--gpu", "--gpu-stall")
DRAIN = "nvmlDeviceGetSamples"
CPU_DISK_NET = "usr sys idl wai stl| read  writ| recv  send"


class Desk:
    """A user's home folder with the plugin installed, and a daemon's runtime folder."""

    def __init__(self, host: RealHost, root: Path) -> None:
        self.host = host
        self.root = root
        self.runtime = root / "runtime"
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        self.environ = {**kept, "HOME": str(root), "GPUMON_RUNTIME_DIR": str(self.runtime)}
        # Its warning about one of its modules would be between the lines.
        self.environ["PYTHONWARNINGS"] = "ignore"

    def shows(self, *words: str, columns: int = 120, **environ: str) -> Written:
        """Run the host with these arguments."""
        # Without these options dool has its own frames and colours.
        as_dstat = ["--ascii", "--color16"] if self.host.name == "dool" else []
        return on_a_terminal(
            [*self.host.words, *as_dstat, *words],
            environ={**self.environ, **environ},
            columns=columns,
        )

    def csv_rows(self, *words: str) -> list[list[str]]:
        """Let it write a CSV file, and read that from its last header on."""
        path = self.root / "x.csv"
        written = self.shows("--output", str(path), *words)
        assert written.exit_code == 0, written.raw
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))
        (header,) = (i for i, row in enumerate(rows) if row[:1] == ["usr"])
        return rows[header - 1 :]


on_both = pytest.mark.parametrize("desk", ["dstat", "dool"], indirect=True)
"""``tests/contract`` has the rest on both hosts."""


@pytest.fixture
def desk(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    host = real_host(getattr(request, "param", "dstat"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert gpumon(["dstat", "install"]) == 0
    return Desk(host, tmp_path)


def header_of(written: Written) -> tuple[str, str]:
    """The two lines of the header."""
    (at,) = (i for i, line in enumerate(written.lines) if re.search(r"\buse\b.*\bstrv\b", line))
    return written.lines[at - 1], written.lines[at]


def rows_of(written: Written) -> list[str]:
    """The rows below the header, each as its GPU cells: ``"40 50 50?"``."""
    header = header_of(written)[1]
    rows = written.lines[written.lines.index(header) + 1 :]
    at = header.index("use")
    return [" ".join(row[at:].replace(":", " ").split()) for row in rows if row]


class TestTheScreen:
    @on_both
    def test_has_use_memory_and_starved_share_of_each_gpu_next_to_the_cpu(self, desk: Desk) -> None:
        with daemon(desk.runtime, STARVED, HEALTHY):
            written = desk.shows("-cdn", "--gpu", "1", "3")

        assert written.exit_code == 0
        title, header = header_of(written)
        assert title.endswith("----gpu0---------gpu1----")
        assert header == CPU_DISK_NET + "|use mem strv:use mem strv"
        assert rows_of(written) == ["40 50 50? 96 50 2"] * 3

    def test_shows_all_gpus_with_f_starved_in_red_and_healthy_in_green(self, desk: Desk) -> None:
        with daemon(desk.runtime, STARVED, HEALTHY, {"busy": 0.9, "starved": 0.1}, HEALTHY):
            written = desk.shows("-c", "-f", "--gpu", "1", "2")

        assert re.findall(r"gpu\d", header_of(written)[0]) == ["gpu0", "gpu1", "gpu2", "gpu3"]
        rows = [line for line in written.raw_lines if " 50?" in line]
        assert len(rows) == 2
        for row in rows:
            assert f"{RED} 50?" in row
            assert f"{GREEN}  2 " in row
            assert f"{YELLOW} 10 " in row


class TestWhatWasLost:
    def test_is_next_to_the_other_columns_with_its_main_cause_and_the_reason(
        self, desk: Desk
    ) -> None:
        cold = {"busy": 0.5, "starved": 0.4, "disk_bound": 0.3}
        with daemon(desk.runtime, cold, HEALTHY):
            written = desk.shows("-c", "--gpu", "--gpu-stall", "1", "2")

        assert written.exit_code == 0
        header = header_of(written)[1]
        assert header.endswith("|use mem strv:use mem strv|lost main cause     :lost main cause")
        assert rows_of(written) == ["50 50 40 96 50 2 | 50 40 input/disk 4 2 input"] * 2
        assert f"{RED}  50" in written.raw
        assert f"{GREEN}   4" in written.raw


class TestTheDaemon:
    @on_both
    def test_is_requested_once_and_found_when_it_starts(self, desk: Desk) -> None:
        with daemon(desk.runtime, STARVED, HEALTHY, delay_s=2.5):
            written = desk.shows("-c", "--gpu", "1", "6")

        assert written.exit_code == 0
        assert written.raw.count("`gpumon serve`") == 1
        rows = rows_of(written)
        assert rows[0] == "- - -"
        assert rows[-1] == "68 0 26?"


class TestADaemonThatReadsSeldom:
    """``gpumon serve`` drains the driver's ring every few seconds while no user looks."""

    @on_both
    def test_shows_each_second_as_it_was(self, desk: Desk, fake_library: Path) -> None:
        machine = Machine(desk.root, fake_library.parent, gpus=1)
        machine.fake.wave(0, period_s=1 / 6, busy_ratio=0.4)
        with machine.serve("--period", "1") as daemon:
            daemon.wait_for(lambda state: state["gpus"] and state["gpus"][0]["observed_ns"] > 6e9)
            drained = machine.fake.calls(DRAIN)
            desk.environ["GPUMON_RUNTIME_DIR"] = str(daemon.runtime_dir)
            then = {"period_s": 1 / 6, "busy_ratio": 0.9}
            later = threading.Timer(6.5, machine.fake.wave, (0,), then)
            later.start()
            written = desk.shows("-c", "--gpu", "1", "12")
            later.join()
        rows = [row.split()[0] for row in rows_of(written)]
        used = [use for use, _ in itertools.groupby(rows)]

        assert machine.fake.calls(DRAIN) - drained >= 9
        assert len(rows) == 12
        assert (used[0], used[-1]) == ("40", "90")
        assert len(used) <= 3  # no row of several seconds, and at most one in which it changed
        assert 5 <= rows.index("90") <= 10


class TestTheCsvFile:
    @on_both
    def test_has_a_cell_for_each_column_of_each_gpu(self, desk: Desk) -> None:
        with daemon(desk.runtime, STARVED, HEALTHY):
            groups, header, *rows = desk.csv_rows("-c", "--gpu", "1", "3")

        assert groups[5:] == ["gpu0", "", "", "gpu1", "", ""]
        nicks = ("use", "mem", "strv")
        assert header[5:] == [f"{gpu}:{nick}" for gpu in ("gpu0", "gpu1") for nick in nicks]
        assert len(rows) == 3
        for row in rows:
            assert [round(float(cell)) for cell in row[5:]] == [40, 50, 50, 96, 50, 2]
