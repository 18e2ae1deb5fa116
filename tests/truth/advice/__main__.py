"""Follow each advice, and compare the gain with the promised one.

python -m tests.truth.advice                     all of them; writes docs/advice-bounds.md
python -m tests.truth.advice --only "cold disk"  some of them; the page is not written
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

from tests.truth.advice.followed import Followed, advice_followed, bounds_table, is_kept
from tests.truth.advice.runs import CASES
from tests.truth.advice.slow_examples import SLOW_EXAMPLES, example_followed
from tests.truth.host.surroundings import NotHereError, stage_of
from tests.truth.host.work import MIB
from tests.truth.tables import DOCS, parser, put


def main() -> int:
    """Run them; 1 if a gain is not within its bound."""
    arguments = parser(__doc__)
    arguments.add_argument("--only", default="", help="advice whose name contains this text")
    args = arguments.parse_args()
    with stage_of(256 * MIB) as stage:
        follow: dict[str, Callable[[], Followed]] = {
            name: partial(advice_followed, name, stage) for name in CASES
        }
        follow |= {f"examples/{name}.py": partial(example_followed, name) for name in SLOW_EXAMPLES}
        rows = {name: _row(name, one) for name, one in follow.items() if args.only in name}
    shown = bounds_table(rows)
    print(shown)
    if not args.only:
        put("bounds", shown, DOCS / "advice-bounds.md")
    return 0 if all(isinstance(row, str) or is_kept(row) for row in rows.values()) else 1


def _row(name: str, follow: Callable[[], Followed]) -> Followed | str:
    """The advice followed, or why this machine cannot."""
    try:
        row: Followed | str = follow()
    except NotHereError as reason:
        row = str(reason)
    print(f"{name}: {row}", file=sys.stderr, flush=True)
    return row


if __name__ == "__main__":
    sys.exit(main())
