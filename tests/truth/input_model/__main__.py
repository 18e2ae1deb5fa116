"""Fit the model of suspicion on three generators, and test it on one that was left out.

python -m tests.truth.input_model fit      writes the weights in gpumon/core/settings/input_model.py
python -m tests.truth.input_model score    writes a part of docs/accuracy-tables.md
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from gpumon.core.settings import input_model
from gpumon.core.settings.input_model import PRIOR, TERMS
from tests.truth.input_model.cases import FAMILIES, Case, all_cases, recorded_cases
from tests.truth.input_model.fitting import fitted
from tests.truth.input_model.scored import (
    RATES_S,
    graded,
    left_out,
    left_out_table,
    lost_seconds_table,
    rates_table,
    reliability_table,
    terms_table,
    wrong_kinds_table,
)
from tests.truth.tables import DOCS, parser, progress, put, today
from tests.truth.workloads import EVALUATION_SEEDS, TRAINING_SEEDS

FITTED_ON: Final = 16
SCORED_ON: Final = 32
_READ_AT_RATES: Final = 6
_FROM, _TO = "# fitted: from here\n", "# fitted: to here\n"


def main() -> None:
    """Fit, or score."""
    arguments = parser(__doc__)
    arguments.add_argument("what", choices=["fit", "score"])
    arguments.add_argument("--seeds", type=int, help="of each kind")
    args = arguments.parse_args()
    fit_seeds = TRAINING_SEEDS[: args.seeds or FITTED_ON]
    train = _cases(fit_seeds, "machines to fit on")
    if args.what == "fit":
        write(fitted(train))
        return
    seeds = EVALUATION_SEEDS[: args.seeds or SCORED_ON]
    scored = [*_cases(seeds, "machines to score on"), *recorded_cases()]
    some = graded(scored, left_out(train))
    rates = _cases(seeds[:_READ_AT_RATES], "the same at three rates", RATES_S)
    put("terms", terms_table(), DOCS / "how-sure.md")
    undecided = sum(one.probability == PRIOR for one in some) / len(some)
    tables = [left_out_table(some), reliability_table(some), wrong_kinds_table(some)]
    tables += [rates_table(rates), lost_seconds_table(rates)]
    put(
        "suspicion",
        f"`python -m tests.truth.input_model score`, {today()}: seeds {seeds[0]} to {seeds[-1]} of "
        f"each kind; weights fitted on seeds {fit_seeds[0]} to {fit_seeds[-1]} of the generators "
        "that are not left out. The shape "
        f"decides nothing in {undecided:.0%} of the logs.\n\n" + "\n\n".join(tables),
    )


def _cases(seeds: range, what: str, periods_s: Sequence[float] = ()) -> list[Case]:
    kinds = sum(len(family.kinds) for family in FAMILIES.values())
    with progress(what, len(seeds) * kinds) as done_one:
        return [*all_cases([*FAMILIES], seeds, done_one, periods_s)]


def write(weights: Sequence[float]) -> None:
    """Put the weights between the marks of the settings."""
    path = Path(input_model.__file__)
    head, _, rest = path.read_text(encoding="utf-8").partition(_FROM)
    _, _, tail = rest.partition(_TO)
    rows = "".join(f'    "{name}": {one},\n' for name, one in zip(TERMS, weights, strict=True))
    body = f"WEIGHTS: Final[Mapping[str, float]] = {{\n{rows}}}\n"
    path.write_text(f"{head}{_FROM}{body}{_TO}{tail}", encoding="utf-8")


if __name__ == "__main__":
    main()
