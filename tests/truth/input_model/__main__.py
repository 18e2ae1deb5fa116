"""Fits the model of suspicion on worlds of the training seeds, and says how right it is on others.

python -m tests.truth.input_model fit        writes gpumon/core/settings/input_model.py: 25 minutes
python -m tests.truth.input_model score      writes a part of docs/accuracy-tables.md: 15 minutes
python -m tests.truth.input_model score --development --seeds 5      seeds to look at; printed
"""

from __future__ import annotations

import argparse
import datetime
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress

from gpumon.core.settings import input_model
from gpumon.core.time.cycles import PauseShape
from tests.truth.input_model.cases import Case, all_cases
from tests.truth.input_model.fitting import Fitted, fitted
from tests.truth.input_model.scored import tables
from tests.truth.measured_page import put
from tests.truth.worlds import DEVELOPMENT_SEEDS, EVALUATION_SEEDS, KINDS, TRAINING_SEEDS

TERMS: Final = 120
TRAINED_ON: Final = 320
SCORED_ON: Final = 50
_FROM, _TO = "# fitted: from here\n", "# fitted: to here\n"


def main() -> int:
    """Fit, or score."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["fit", "score"])
    parser.add_argument("--seeds", type=int, help="of each kind")
    parser.add_argument("--terms", type=int, default=TERMS, help="that the model may have")
    parser.add_argument("--development", action="store_true", help="score on these, and print")
    parser.add_argument("--forest", action="store_true", help="fit one beside it (scikit-learn)")
    args = parser.parse_args()
    if args.what == "fit":
        write(fit(_cases(TRAINING_SEEDS[: args.seeds or TRAINED_ON], "training"), args.terms))
        return 0
    seeds = (DEVELOPMENT_SEEDS if args.development else EVALUATION_SEEDS)[: args.seeds or SCORED_ON]
    cases = _cases(seeds, "worlds")
    trained_on = _cases(TRAINING_SEEDS[:TRAINED_ON], "the forest's") if args.forest else None
    said = tables(cases, None if trained_on is None else _forest(trained_on, cases))
    print(said)
    if not args.development:
        today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
        command = f"`python -m tests.truth.input_model score{' --forest' * args.forest}`"
        put(
            "suspicion",
            f"{command}, {today}: evaluation seeds {seeds[0]} to {seeds[-1]} of each kind, every "
            f"second one short (3 to 15 min), the others of 2 h and cut at 15, 30 and 60 min.\n\n"
            f"{said}",
        )
    return 0


def fit(cases: Sequence[Case], terms: int) -> Fitted:
    """The model of those that lose enough for a word, in pauses of which there are enough.

    One log weighs as much as another, however many GPUs it has.
    """
    return fitted(PauseShape._fields, *_examples(cases), terms)


def _examples(
    cases: Sequence[Case],
) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.float64]]:
    """Features, whether it is starved, and how much it weighs."""
    graded = [case for case in cases if case.is_graded]
    gpus = Counter(case.machine for case in graded)
    shapes = [case.suspicion.shape for case in graded if case.suspicion]
    return (
        np.array(shapes, dtype=np.float64),
        np.array([case.is_starved for case in graded]),
        np.array([1 / gpus[case.machine] for case in graded]),
    )


def _forest(trained_on: Sequence[Case], asked: Sequence[Case]) -> Mapping[int, float]:
    """What a forest says of each case that is graded, by its place."""
    from sklearn.ensemble import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
        RandomForestClassifier,
    )

    features, is_late, weight = _examples(trained_on)
    forest = RandomForestClassifier(300, min_samples_leaf=5, n_jobs=-1, random_state=0)
    forest.fit(features, is_late, sample_weight=weight)
    places = [at for at, case in enumerate(asked) if case.is_graded]
    shapes, _, _ = _examples(asked)
    return dict(zip(places, forest.predict_proba(shapes)[:, 1].tolist(), strict=True))


def _cases(seeds: range, what: str) -> list[Case]:
    with Progress(console=Console(file=sys.stderr)) as progress:
        task = progress.add_task(what, total=len(seeds) * len(KINDS))
        return list(all_cases(list(KINDS), seeds, lambda: progress.advance(task)))


def write(model: Fitted) -> None:
    """Put it between the marks of the settings."""
    path = Path(input_model.__file__)
    head, _, rest = path.read_text(encoding="utf-8").partition(_FROM)
    _, _, tail = rest.partition(_TO)
    lines = [
        _table("CENTRES", "str", [(f'"{name}"', off) for name, off in model.centres.items()]),
        _table("SCALES", "str", [(f'"{name}"', size) for name, size in model.scales.items()]),
        _table("WEIGHTS", "tuple[str, ...]", [(_key(n), w) for n, w in model.weights.items()]),
    ]
    path.write_text(f"{head}{_FROM}{''.join(lines)}{_TO}{tail}", encoding="utf-8")


def _table(name: str, key: str, rows: list[tuple[str, float]]) -> str:
    body = "".join(f"    {name}: {value},\n" for name, value in rows)
    return f"{name}: Final[Mapping[{key}, float]] = {{\n{body}}}\n"


def _key(names: tuple[str, ...]) -> str:
    quoted = ", ".join(f'"{name}"' for name in names)
    return f"({quoted},)" if len(names) == 1 else f"({quoted})"


if __name__ == "__main__":
    sys.exit(main())
