"""The verdicts on published logs, next to what their owners say ran.

The logs are not in this repository; the page names where each was published.

python -m tests.truth.public_logs FOLDER            prints the table
python -m tests.truth.public_logs FOLDER --write    writes it into docs/accuracy-tables.md
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from gpumon.core.verdict import Verdict
from gpumon.sources.logs.detect import reader_for
from gpumon.sources.logs.log_sample import LogOptions
from gpumon.sources.logs.log_text import LogText
from tests.builders.logs import analyse_file, samples_of
from tests.truth.score.detectors import STARVED, Percents, mean_below_70, sagemaker
from tests.truth.tables import parser, put, table


class Published(NamedTuple):
    """A published log.

    Attributes:
        file: Its name in the folder.
        source: Repository, commit and path.
        ran: What its owner says ran.
        is_starved: Whether that waits for input; ``None``: unknown.
    """

    file: str
    source: str
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


def published_table(folder: Path) -> str:
    """A row for each log in the folder, and how many verdicts agree with the owner."""
    rows, agreements = [], []
    for log in PUBLISHED:
        path = folder / log.file
        if not path.exists():
            continue
        report, percents = analyse_file(str(path), LogOptions()), _percents(path)
        is_suspected = any(gpu.verdict.name in STARVED for gpu in report.gpus)
        agrees = "unknown"
        if log.is_starved is not None:
            agreements.append(is_suspected is log.is_starved)
            agrees = _yes(agreements[-1])
        rows.append([
            log.source, log.ran, f"{report.period_ns / 1e9:.2g} s",
            ", ".join(_verdict_text(gpu.verdict) for gpu in report.gpus), _yes(is_suspected),
            agrees, _yes(mean_below_70(percents).is_starved), _yes(sagemaker(percents).is_starved),
        ])  # fmt: skip
    heads = ["log", "what ran, according to its owner", "a reading each", "`gpumon analyze`"]
    heads += ["suspected", "agrees", "mean below 70 %", "SageMaker p95/p5"]
    agreed = f"Agrees with the owner in {sum(agreements)} of {len(agreements)}."
    return f"{table(heads, rows)}\n\n{agreed}"


def main() -> int:
    """Print the table; 1 if the folder has none of the logs."""
    arguments = parser(__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--write", action="store_true")
    args = arguments.parse_args()
    if not any((args.folder / log.file).exists() for log in PUBLISHED):
        print(f"{args.folder}: has none of the published logs", file=sys.stderr)
        return 1
    shown = published_table(args.folder)
    print(shown)
    if args.write:
        put("public logs", f"`python -m tests.truth.public_logs FOLDER`:\n\n{shown}")
    return 0


def _percents(path: Path) -> Percents:
    with LogText(str(path)) as text:
        reader = reader_for(text.lines(), name=text.name, options=LogOptions())
        ratios = [one.busy_ratio for one in samples_of(reader) if one.busy_ratio is not None]
    return np.asarray(np.rint(100 * np.asarray(ratios)), dtype=np.uint8)


def _verdict_text(verdict: Verdict) -> str:
    name = verdict.name.value.replace("_", " ")
    if verdict.input_probability is None:
        return name
    return f"{name} (late input: {verdict.input_probability:.0%})"


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


if __name__ == "__main__":
    sys.exit(main())
