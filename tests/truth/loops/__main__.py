"""Runs the loops that no one modelled, and writes their tables into docs/accuracy.md.

python -m tests.truth.loops            the catalog, and 500 drawn loops
python -m tests.truth.loops --seeds 50
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.truth.loops.table import SECONDS, drawn_table, named_measured, named_table
from tests.truth.measured_page import put

_UNSEEN_FROM: Final = 1_000
"""Limits were tuned on seeds below."""
PAGE: Final = Path(__file__).parents[3] / "docs" / "accuracy.md"


def main(argv: Sequence[str] | None = None) -> int:
    """Write both tables; 0."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=500, help="how many loops are drawn")
    args = parser.parse_args(argv)
    put("loops", named_table(named_measured()), PAGE)
    seeds = range(_UNSEEN_FROM, _UNSEEN_FROM + args.seeds)
    put("drawn loops", drawn_table(seeds, SECONDS), PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
