"""Do the tests notice a wrong line? Break random lines of the product, one at a time.

    python -m tests.tools.mutated_lines --seed 16 --count 60 --into ordinary.json
    python -m tests.tools.mutated_lines --seed 17 --count 40 --subtle --list
    python -m tests.tools.mutated_lines --again ordinary.json --into after.json

Each folder of the product gets lines in proportion to its size. All tests run once, to learn which
reach each line. Then each line is broken in a copy of the tree, where the tests of its file run,
then those that reach it. A test notices if it fails only with the line broken. ``--again`` takes
the lines of an earlier run, even if they have moved. What only a framework can notice needs its
environment:

    python -m tests.tools.mutated_lines --again before.json --escaped --into torch.json \
        --python .venv-torch/bin/python --words '-m keras_torch' --places tests/keras tests/loops

A stopped run continues, given the same ``--into``.
"""

from __future__ import annotations

import argparse
import json
import queue
import shlex
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

from tests.tools.mutated_lines.mutations import Mutation, drawn, found_again, mutations_of
from tests.tools.mutated_lines.scratch import (
    ROOT,
    Scratch,
    Suite,
    noticed_by,
    repository_files,
    tests_that_reach,
)

NOT_THE_PRODUCT: Final = ("tests/", "benchmarks/", "docs/", "setup.py", "trainer_hooks/old_names/")
PLACES: Final = (
    "tests/unit", "tests/golden", "tests/contract", "tests/logs", "tests/faults",
    "tests/test_docstring_examples.py",
)  # fmt: skip
ESCAPED: Final = "escaped"
Entry = dict[str, Any]
"""A mutation's fields, ``reached`` (tests) and ``noticed`` (a test, ``escaped`` or ``None``)."""


def main(argv: Sequence[str] | None = None) -> None:
    """Break each line and print the shares that were noticed."""
    args = _parser().parse_args(argv)
    entries = _entries(args)
    if args.list:
        print("\n".join(str(_mutation(entry)) for entry in entries))
        return
    python, words = str(Path(args.python).absolute()), tuple(shlex.split(args.words))
    suite = Suite(python, words, tuple(args.places), args.test_s, args.line_s)
    with tempfile.TemporaryDirectory() as folder:
        trees = [Scratch(Path(folder, str(number)), suite) for number in range(args.at_once)]
        _try_all(entries, trees, args)
    _print_shares(entries)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mutated_lines",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=16, help="draws other lines (default: 16)")
    parser.add_argument("--count", type=int, default=60, help="lines (default: 60)")
    parser.add_argument("--subtle", action="store_true", help="boundaries, bounds, clean-up")
    parser.add_argument("--list", action="store_true", help="only list the mutations")
    parser.add_argument("--into", type=Path, help="the file for the results")
    parser.add_argument("--again", type=Path, help="take the lines of this file")
    parser.add_argument("--escaped", action="store_true", help="of --again only those that escaped")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the tests")
    parser.add_argument("--words", default="", help="more arguments for pytest")
    parser.add_argument("--places", nargs="+", default=PLACES, help="the tests")
    parser.add_argument("--test-s", type=float, default=60.0, help="time limit of a test")
    parser.add_argument("--line-s", type=float, default=180.0, help="time limit of a line")
    parser.add_argument("--marks-s", type=float, default=1200.0, help="time limit of the first run")
    parser.add_argument("--at-once", type=int, default=2, help="lines in parallel")
    return parser


def _entries(args: argparse.Namespace) -> list[Entry]:
    """The lines to try: of a stopped run, of an earlier run, or drawn."""
    if args.into is not None and args.into.exists():
        kept: list[Entry] = json.loads(args.into.read_text(encoding="utf-8"))
        return kept
    if args.again is None:
        chosen = drawn(_all_mutations(subtle=args.subtle), args.count, args.seed)
    else:
        chosen = []
        present = [*_all_mutations(subtle=False), *_all_mutations(subtle=True)]
        for entry in json.loads(args.again.read_text(encoding="utf-8")):
            if args.escaped and not _has_escaped(entry):
                continue
            mutation = found_again(_mutation(entry), present)
            if mutation is None:
                print(f"no longer there: {_mutation(entry)}")
            else:
                chosen.append(mutation)
    return [asdict(mutation) | {"reached": None, "noticed": None} for mutation in chosen]


def _all_mutations(*, subtle: bool) -> list[Mutation]:
    return [
        mutation
        for name in repository_files()
        if name.endswith(".py") and not name.startswith(NOT_THE_PRODUCT)
        if not (ROOT / name).is_symlink()
        for mutation in mutations_of(name, (ROOT / name).read_text("utf-8"), subtle=subtle)
    ]


def _mutation(entry: Entry) -> Mutation:
    return Mutation(**{field.name: entry[field.name] for field in fields(Mutation)})


def _try_all(entries: list[Entry], trees: Sequence[Scratch], args: argparse.Namespace) -> None:
    if any(entry["reached"] is None for entry in entries):
        reached = tests_that_reach(list(map(_mutation, entries)), trees[0], args.marks_s)
        for entry, tests in zip(entries, reached, strict=True):
            entry["reached"] = tests
        _save(entries, args.into)
    free: queue.Queue[Scratch] = queue.Queue()
    for tree in trees:
        free.put(tree)

    def try_one(entry: Entry) -> None:
        tree = free.get()
        try:
            entry["noticed"] = noticed_by(_mutation(entry), entry["reached"], tree) or ESCAPED
        finally:
            free.put(tree)
        result = f"{entry['noticed']} (of {len(entry['reached'])} tests that reach it)"
        print(f"{_mutation(entry)}\n    {result}", flush=True)
        _save(entries, args.into)

    with ThreadPoolExecutor(len(trees)) as pool:
        list(pool.map(try_one, [entry for entry in entries if entry["noticed"] is None]))


def _has_escaped(entry: Entry) -> bool:
    return str(entry["noticed"]).startswith(ESCAPED)


def _save(entries: list[Entry], into: Path | None) -> None:
    if into is not None:
        into.write_text(json.dumps(entries, indent=1), encoding="utf-8")


def _print_shares(entries: list[Entry]) -> None:
    lines = Counter(str(Path(entry["path"]).parent) for entry in entries)
    noticed = Counter(str(Path(one["path"]).parent) for one in entries if not _has_escaped(one))
    for folder, count in sorted(lines.items()):
        print(f"{noticed[folder]:4} of {count:3}  {folder}")
    total = noticed.total()
    print(f"{total:4} of {len(entries):3}  all: {total / max(1, len(entries)):.0%}")


if __name__ == "__main__":
    main()
