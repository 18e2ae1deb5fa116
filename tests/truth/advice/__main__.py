"""Follows each advice, and holds what it gained against what was promised.

python -m tests.truth.advice                     all of them; writes docs/advice-bounds.md
python -m tests.truth.advice --only "cold disk"  a look at some; the page is not written
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from gpumon.core.codecs.report_codec import decode_report
from gpumon.core.report.report import Report
from tests.daemon import RunningDaemon
from tests.truth.advice.followed import Followed, followed_of, is_kept, table
from tests.truth.advice.slow_examples import SLOW_EXAMPLES, example_followed
from tests.truth.advice.trainings import CASES, SIDES, Case
from tests.truth.host.cells import ROOT, group_of
from tests.truth.host.surroundings import (
    NotHereError,
    cold_file,
    little_memory,
    must_read_from_a_device,
    slow_server,
)
from tests.truth.host.work import MIB, Stage
from tests.truth.measured_page import put

_PAGE: Final = ROOT / "docs" / "advice-bounds.md"
_FILE_BYTES: Final = 256 * MIB
_SECONDS: Final = {"before": 18.0, "after": 8.0}
"""A verdict, and with it advice, takes 10 s in use; how fast steps go is seen sooner."""
_PATIENCE_S: Final = 120.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run them; 1 where a gain is not within its bound."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="advice whose name has these words")
    args = parser.parse_args(argv)
    with stage_for_advice() as stage:
        rows = {
            name: _row(name, partial(followed, name, case, stage))
            for name, case in CASES.items()
            if args.only in name
        }
    rows |= {
        f"examples/{name}.py": _row(name, partial(example_followed, name))
        for name in SLOW_EXAMPLES
        if args.only in name
    }
    text = table(rows)
    print(text)
    if not args.only:
        put("bounds", text, _PAGE)
    return 0 if all(isinstance(row, str) or is_kept(row) for row in rows.values()) else 1


@contextmanager
def stage_for_advice() -> Iterator[Stage]:
    """A file on a device and a slow server."""
    with (
        tempfile.TemporaryDirectory(prefix="gpumon-truth-") as name,
        cold_file(Path(name), _FILE_BYTES) as file,
        slow_server() as port,
    ):
        yield Stage(file, port)


def _row(name: str, follow: Callable[[], Followed]) -> Followed | str:
    """The advice followed, or why it cannot be here."""
    try:
        row = follow()
    except NotHereError as reason:
        print(f"{name}: not made: {reason}", file=sys.stderr, flush=True)
        return str(reason)
    print(f"{name}: {row}", file=sys.stderr, flush=True)
    return row


def followed(
    name: str, case: Case, stage: Stage, seconds: Mapping[str, float] = _SECONDS
) -> Followed:
    """Train before the change and after it, each beside a daemon of its own.

    Raises:
        NotHereError: This machine cannot; says why.
    """
    before, after = (_trained(name, case, side, stage, seconds[side]) for side in SIDES)
    return followed_of(case.cause, before, after)


def _trained(name: str, case: Case, side: str, stage: Stage, seconds: float) -> Report:
    with ExitStack() as around:
        folder = Path(around.enter_context(tempfile.TemporaryDirectory(prefix="gpumon-truth-")))
        spans = folder / "busy.jsonl"
        words = [
            sys.executable, "-m", "tests.truth.advice.trainings", "--case", name, "--side", side,
            "--seconds", str(seconds + case.at_first_s), "--spans", str(spans),
            "--file", str(stage.file), "--port", str(stage.port),
        ]  # fmt: skip
        if case.needs == "disk":
            must_read_from_a_device(stage.file, 0)
        if case.needs == "cgroup" and side == "before":
            words += ["--cgroup", str(around.enter_context(little_memory()))]
        daemon = around.enter_context(RunningDaemon(folder, "--source", f"follow:{spans}"))
        environ = {**daemon.environ, "GPUMON_GPUS": "0", "PYTHONPATH": str(ROOT)}
        with group_of(words, environ, folder / "training.log") as training:
            training.wait(seconds + _PATIENCE_S)
        if training.returncode != 0:
            raise RuntimeError((folder / "training.log").read_text(encoding="utf-8"))
        return decode_report(daemon.settled_report(patience_s=60))


if __name__ == "__main__":
    sys.exit(main())
