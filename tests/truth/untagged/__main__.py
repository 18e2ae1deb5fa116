"""Run training scripts without any tag beside ``gpumon why`` and ``gpumon serve --stacks``.

python -m tests.truth.untagged                  all of them; writes docs/accuracy-tables.md
python -m tests.truth.untagged --only tf.data   some of them; the page is not written
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from gpumon.core.wording import in_percent
from tests.truth.score.detectors import STARVED
from tests.truth.tables import parser, put, table, today
from tests.truth.untagged.catalog import INNOCENTS, LOOPS, UntaggedLoop
from tests.truth.untagged.measured import (
    FIRST_LINE_WITHIN_S,
    Found,
    Measured,
    NotHereError,
    measured,
)

ACCUSING = tuple(name.value for name in STARVED)
LEAST_RIGHT = 11
"""Of twelve."""


def main() -> int:
    """Run them; 1 if a goal was missed."""
    arguments = parser(__doc__)
    arguments.add_argument("--only", default="", help="loops whose name contains this text")
    arguments.add_argument("--for", dest="length_s", type=float, default=60.0, metavar="SECONDS")
    args = arguments.parse_args()
    found = _run(LOOPS, args.only, args.length_s)
    others = _run(INNOCENTS, args.only, args.length_s)
    text = f"{summary(found, args.length_s)}\n\n{loops_table(found)}"
    of_others = innocents_table(others)
    print(f"{text}\n\n{of_others}")
    if not args.only:
        put("untagged loops", text)
        put("innocents", of_others)
    return 0 if is_kept(found) and not any(map(is_accused, others.values())) else 1


def _run(
    loops: Mapping[str, UntaggedLoop], only: str, length_s: float
) -> dict[str, Measured | str]:
    found: dict[str, Measured | str] = {}
    for name, loop in loops.items():
        if only in name:
            try:
                found[name] = measured(loop, length_s)
            except NotHereError as reason:
                found[name] = str(reason)
            print(table(HEADS, [row(name, found[name])]).splitlines()[-1], flush=True)
    return found


def innocents_table(found: Mapping[str, Measured | str]) -> str:
    """Programs that wait for something else than input."""
    rows = [
        [name, one, "", "", ""]
        if isinstance(one, str)
        else [
            name, f"`{one.why.answer}`", f"`{one.line}`", f"`{one.verdict}`",
            "**yes**" if is_accused(one) else "no",
        ]
        for name, one in found.items()
    ]  # fmt: skip
    heads = ("program", "`gpumon why`", "the line it names", "`serve --stacks`", "accused")
    return table(heads, rows)


def is_accused(one: Measured | str) -> bool:
    """Whether it is reported to wait for input, or suspected of it."""
    return isinstance(one, Measured) and (one.is_wrong or one.verdict in ACCUSING)


HEADS = (
    "the GPU waits for", "`gpumon why`", "the line it names", "share", "truth", "first line after",
    "`serve --stacks`", "seen", "truth", "wrong cause",
)  # fmt: skip


def loops_table(found: Mapping[str, Measured | str]) -> str:
    return table(HEADS, [row(name, one) for name, one in found.items()])


def row(name: str, one: Measured | str) -> list[str]:
    """Shares are of the idle time."""
    if isinstance(one, str):
        return [name, one, *[""] * (len(HEADS) - 2)]
    why, served = one.why, one.served
    first = "" if one.first_line_s is None else f"{one.first_line_s:.1f} s"
    return [
        name, f"`{why.answer}`", f"`{one.line}`", in_percent(why.share), in_percent(why.true_share),
        first, f"`{served.answer}`" if served.answer else "cause unknown",
        in_percent(one.seen_share), in_percent(served.true_share) if served.answer else "",
        ", ".join([*why.wrong, *served.wrong]) or "none",
    ]  # fmt: skip


def summary(found: Mapping[str, Measured | str], length_s: float) -> str:
    """How many are right, in a sentence."""
    run = [one for one in found.values() if isinstance(one, Measured)]
    right = sum(one.is_right for one in run)
    close = sum(one.why.is_close for one in run)
    wrong = sum(one.is_wrong for one in run)
    return (
        f"`python -m tests.truth.untagged`, {today()}: {length_s:g} s each. The right cause or the "
        f"right function in {right} of {len(run)}, a wrong cause in {wrong}; the share within 10 "
        f"points of the truth in {close}."
    )


def is_kept(found: Mapping[str, Measured | str]) -> bool:
    """Whether the goals are met by the loops that could run."""
    run = [one for one in found.values() if isinstance(one, Measured)]
    missed = len(run) - sum(one.is_right for one in run)
    return missed <= len(LOOPS) - LEAST_RIGHT and all(
        _is_close(one.why) and not one.is_wrong and _is_soon(one) for one in run
    )


def _is_close(why: Found) -> bool:
    return why.is_close


def _is_soon(one: Measured) -> bool:
    return one.first_line_s is not None and one.first_line_s <= FIRST_LINE_WITHIN_S


if __name__ == "__main__":
    sys.exit(main())
