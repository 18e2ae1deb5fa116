"""What the detector says of logs that other people published, beside what they say ran.

The logs are not in this repository; the page names where each was published.

python -m tests.truth.public_logs FOLDER            prints the table
python -m tests.truth.public_logs FOLDER --write    puts it into docs/accuracy-tables.md
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from gpumon.core.verdict import Verdict
from gpumon.sources.logs.detect import reader_for
from gpumon.sources.logs.log_sample import LogOptions
from gpumon.sources.logs.log_text import LogText
from tests.builders.logs import analyse_file, samples_of
from tests.truth.measured_page import put
from tests.truth.score.baselines import Percents, mean_below_70, sagemaker
from tests.truth.score.finding import STARVED

MARK: Final = "public logs"
_HEAD: Final = """\
| log | what ran, as its owner says | a reading each | `gpumon analyze` | accused | agrees | \
mean below 70 % | SageMaker p95/p5 |
|---|---|---|---|---|---|---|---|"""


class Published(NamedTuple):
    """A log someone published.

    Attributes:
        file: Its name in the folder.
        place: Repository, commit and path.
        ran: What its owner says of it.
        is_starved: Whether that is a wait for input; ``None``: no one says.
    """

    file: str
    place: str
    ran: str
    is_starved: bool | None


PUBLISHED: Final = (
    Published(
        "aucurriculum_a40.log",
        "internationalJoke/aucurriculum @ dff390a947 : gpu_monitor.log",
        "curriculum training on speech commands",
        None,
    ),
    Published(
        "piranha_vgg16.csv",
        "GoldenPotato137/piranha @ f7bc2e3bd0 : gpu_utilization_log.csv",
        "secure multi-party VGG16: bursts bound by communication",
        False,
    ),
    Published(
        "plato_fl.csv",
        "beam11221/plato @ 2aecdb833b : gpu_log.csv",
        "federated learning: idle between the rounds",
        False,
    ),
    Published(
        "miris_v100s.csv",
        "AndyZzzZzzZzz/miris @ c08e726979 : gpu_log.csv",
        "queries on objects in videos: short bursts, mostly idle",
        False,
    ),
)


def table(folder: Path) -> str:
    """A row for each log that is there, in Markdown, with a sentence on how many agree."""
    rows, agreed, diagnosed = [], 0, 0
    for log in PUBLISHED:
        path = folder / log.file
        if not path.exists():
            continue
        report, percents = analyse_file(str(path), LogOptions()), _percents(path)
        accused = any(gpu.verdict.name in STARVED for gpu in report.gpus)
        words = ", ".join(_verdict_text(gpu.verdict) for gpu in report.gpus)
        agrees = "nobody says"
        if log.is_starved is not None:
            diagnosed, agreed = diagnosed + 1, agreed + (accused is log.is_starved)
            agrees = _yes(accused is log.is_starved)
        rows.append(
            f"| {log.place} | {log.ran} | {report.period_ns / 1e9:.2g} s | {words} | "
            f"{_yes(accused)} | {agrees} | {_yes(mean_below_70(percents).is_starved)} | "
            f"{_yes(sagemaker(percents).is_starved)} |"
        )
    return "\n".join([_HEAD, *rows, "", f"Agrees with the owner in {agreed} of {diagnosed}."])


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; 1 where the folder has none of the logs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args(argv)
    if not any((args.folder / log.file).exists() for log in PUBLISHED):
        print(f"{args.folder}: has none of the published logs", file=sys.stderr)
        return 1
    shown = table(args.folder)
    print(shown)
    if args.write:
        put(MARK, f"`python -m tests.truth.public_logs FOLDER`:\n\n{shown}")
    return 0


def _percents(path: Path) -> Percents:
    with LogText(str(path)) as text:
        reader = reader_for(text.lines(), name=text.name, options=LogOptions())
        ratios = [one.busy_ratio for one in samples_of(reader) if one.busy_ratio is not None]
    return np.asarray(np.rint(100 * np.asarray(ratios)), dtype=np.uint8)


def _verdict_text(verdict: Verdict) -> str:
    word = verdict.name.value.replace("_", " ")
    if verdict.input_probability is None:
        return word
    return f"{word} (late input: {verdict.input_probability:.0%})"


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


if __name__ == "__main__":
    sys.exit(main())
