"""Draw the pictures of ``docs/images``: those that are older than what they show, or by name.

    python -m tests.tools.draw_pictures [--all] [NAME...]

``docs/images/made-from.json`` has a hash of the files that each picture was made from;
``tests/test_pictures.py`` compares them. GPUs in them are simulated, and marked so, but for
``report.png``, which is of a recording of a real board.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
IMAGES: Final = ROOT / "docs" / "images"
MADE_FROM: Final = IMAGES / "made-from.json"
_VIEW: Final = (
    "gpumon/core/view/*.py",
    "gpumon/outlets/text/monitor_view.py",
    "tests/builders/sixteen_gpus.py",
)
_PLOT: Final = (
    "gpumon/core/view/palette.py",
    "gpumon/outlets/plot/figure.py",
    "gpumon/outlets/plot/lane_drawing.py",
)
_BOARDS: Final = (
    "grafana/dashboards/*.json",
    "grafana/picture*.py",
    "tests/builders/scripted_hosts.py",
)
_KEPT: Final = ("XDG_RUNTIME_DIR", "PATH", "LANG")


class Picture(NamedTuple):
    """A picture, or several that are drawn together.

    Attributes:
        draw: Writes the files into a folder.
        sources: Patterns of the files that it shows, from the root of the repository.
        names: Its files in ``docs/images``.
    """

    draw: Callable[[Path], None]
    sources: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def files(self) -> list[Path]:
        found = {path for pattern in self.sources for path in ROOT.glob(pattern)}
        return sorted(path for path in found if path.is_file())

    @property
    def made_from(self) -> str:
        """A hash of its sources."""
        hashed = hashlib.sha256()
        for path in self.files:
            hashed.update(f"{path.relative_to(ROOT)}\n".encode())
            hashed.update(hashlib.sha256(path.read_bytes()).digest())
        return hashed.hexdigest()[:16]


# -- the page and the screen -----------------------------------------------------


def draw_page(folder: Path) -> None:
    """The live page of sixteen GPUs, in a real Chromium."""
    from playwright.sync_api import sync_playwright

    from tests.builders.sixteen_gpus import served_live
    from tests.e2e.conftest import ARGUMENTS, CHROMIUM

    with served_live() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(f"http://{address}/")
        page.locator("article.lane canvas").first.wait_for()
        page.wait_for_timeout(1_000)  # until all canvases are drawn
        page.screenshot(path=folder / "page.png")
        browser.close()


def draw_top(folder: Path) -> None:
    """``gpumon top -1`` on the same GPUs."""
    from gpumon.core.state import MonitorState
    from gpumon.outlets.http.page_history import PageHistory
    from gpumon.outlets.screen.ink import Ink
    from gpumon.outlets.screen.one_screen import Screenful, one_screen
    from gpumon.outlets.text.monitor_view import ViewBuilder
    from gpumon.outlets.text.style import TextStyle
    from gpumon.pipeline.report_builder import Reports
    from tests.builders.sixteen_gpus import LONG_S, SixteenGpus

    columns = 150
    machine, reports, history = SixteenGpus(1_796_000_000.0), Reports(), PageHistory()

    def follow(state: MonitorState) -> None:
        reports.follow(state)
        history.append(state)

    state = machine.play(LONG_S, follow)
    view = ViewBuilder().view(state, reports.report_on(state), history.cells())
    shown = Screenful(view, "watched by `gpumon serve`")
    lines = one_screen(shown, columns, Ink(TextStyle(colour=True)))
    _write_svg(folder / "top.svg", lines, columns, "gpumon top -1")


# -- terminals -------------------------------------------------------------------


def draw_dstat(folder: Path) -> None:
    """``dstat --gpu`` beside a daemon that watches simulated GPUs."""
    from tests.daemon import RunningDaemon
    from tests.e2e.pty_terminal import on_a_terminal
    from tests.programs import gpumon
    from tests.waiting import wait_until

    with (
        tempfile.TemporaryDirectory() as home,
        RunningDaemon(Path(home), "--source", "simulated:input-bound") as daemon,
    ):
        environ = {name: os.environ[name] for name in _KEPT if name in os.environ}
        environ |= {"HOME": home, "GPUMON_RUNTIME_DIR": str(daemon.runtime_dir)}
        environ["PYTHONWARNINGS"] = "ignore"
        gpumon("dstat", "install", environ=environ)
        wait_until(lambda: daemon.state()["gpus"][0]["suspected_ns"] > 0, patience_s=120)
        dstat = shutil.which("dstat")
        words = [dstat] if dstat else [sys.executable, "-m", "dool", "--ascii", "--color16"]
        written = on_a_terminal([*words, "--gpu", "1", "8"], environ=environ, columns=60)
    lines = [line for line in written.raw_lines if line.strip()]
    _write_svg(folder / "dstat.svg", _from_ansi(lines), 32, "dstat --gpu 1 8")


def draw_demo(folder: Path) -> None:
    """The end of ``gpumon demo``: a slow input pipeline, and the same with prefetch."""
    from tests.e2e.pty_terminal import on_a_terminal

    with tempfile.TemporaryDirectory() as home:
        environ = {name: os.environ[name] for name in _KEPT if name in os.environ}
        environ |= {"HOME": home, "GPUMON_RUNTIME_DIR": f"{home}/run", "PYTHONPATH": str(ROOT)}
        words = [sys.executable, "-m", "gpumon", "demo"]
        written = on_a_terminal(words, environ=environ, columns=100, timeout_s=600)
    lines = written.raw_lines
    begin = next(at for at, line in enumerate(lines) if "side by side" in line)
    _write_svg(folder / "demo.svg", _from_ansi(lines[begin + 2 :]), 84, "gpumon demo")


def _from_ansi(lines: Iterable[str]) -> list[object]:
    from rich.text import Text

    return [Text.from_ansi(line) for line in lines]


def _write_svg(path: Path, lines: Iterable[object], columns: int, title: str) -> None:
    """Write a terminal as an SVG that loads no font from anywhere."""
    from rich._export_format import CONSOLE_SVG_FORMAT
    from rich.console import Console

    without_fonts = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        console = Console(
            file=nowhere, record=True, width=columns, force_terminal=True, color_system="truecolor"
        )
        for line in lines:
            console.print(line, no_wrap=True, crop=True, highlight=False)
        svg = console.export_svg(title=title, code_format=without_fonts, unique_id=path.stem)
    path.write_text(svg, encoding="utf-8")


# -- plots -----------------------------------------------------------------------


def draw_log(folder: Path) -> None:
    """``gpumon analyze --plot`` of the example log."""
    from tests.programs import gpumon

    log, path = ROOT / "examples" / "slow_run.csv", folder / "analyze.png"
    done = gpumon("analyze", str(log), "--plot", str(path))
    assert path.exists(), done.stderr


def draw_report(folder: Path) -> None:
    """The picture of ``gpumon replay --html``, of a recording of a real board."""
    from gpumon.core.view.palette import LIGHT
    from gpumon.outlets.plot.figure import picture
    from gpumon.pipeline.replay import replayed_report
    from gpumon.sources.recording import RecordingFile

    with RecordingFile(str(ROOT / _RECORDING)) as recording:
        report, lanes = replayed_report(recording)
    assert lanes is not None
    (folder / "report.png").write_bytes(picture(report, lanes, "png", LIGHT, headline=False))


def draw_boards(folder: Path) -> None:
    """The dashboards, of a scripted half hour."""
    from grafana.pictures import write_all

    write_all(folder)


_RECORDING: Final = "tests/recordings/nvidia-h100-80gb-hbm3-keras.gpumon"

PICTURES: Final = (
    Picture(draw_page, ("gpumon/outlets/web/*", *_VIEW), ("page.png",)),
    Picture(draw_top, ("gpumon/outlets/screen/*.py", *_VIEW), ("top.svg",)),
    Picture(draw_dstat, ("dstat_plugins/*.py",), ("dstat.svg",)),
    Picture(
        draw_demo,
        ("gpumon/cli/demo.py", "gpumon/outlets/text/comparison.py", "trainer_hooks/examples/*.py"),
        ("demo.svg",),
    ),
    Picture(draw_log, (*_PLOT, "examples/slow_run.csv"), ("analyze.png",)),
    Picture(draw_report, (*_PLOT, _RECORDING), ("report.png",)),
    Picture(
        draw_boards,
        _BOARDS,
        ("gpumon-fleet.png", "gpumon-host.png", "gpumon-host-boards.png", "gpumon-run.png"),
    ),
)


def read_made_from() -> dict[str, str]:
    """The hash that each file in ``docs/images`` was made from."""
    known: dict[str, str] = json.loads(MADE_FROM.read_text(encoding="utf-8"))
    return known


def outdated() -> list[Picture]:
    """Those that are missing, or older than what they show."""
    known = read_made_from() if MADE_FROM.exists() else {}
    return [
        picture
        for picture in PICTURES
        if any(
            known.get(name) != picture.made_from or not (IMAGES / name).exists()
            for name in picture.names
        )
    ]


def main() -> int:
    """Draw; one picture that fails leaves the others."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--all", action="store_true", help="also those that are current")
    parser.add_argument("names", nargs="*", metavar="NAME", help="such as page.png")
    args = parser.parse_args()
    wanted = list(PICTURES) if args.all else outdated()
    if args.names:
        wanted = [one for one in PICTURES if {*one.names} & {*args.names}]
    failed = 0
    for picture in wanted:
        try:
            with tempfile.TemporaryDirectory() as folder:
                picture.draw(Path(folder))
                for name in picture.names:
                    shutil.copyfile(Path(folder) / name, IMAGES / name)
        except Exception as error:  # noqa: BLE001
            print(f"{' '.join(picture.names)}: {error!r}", file=sys.stderr)
            failed = 1
            continue
        known = read_made_from() if MADE_FROM.exists() else {}
        known |= dict.fromkeys(picture.names, picture.made_from)
        MADE_FROM.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        print(f"drew {' '.join(picture.names)}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
