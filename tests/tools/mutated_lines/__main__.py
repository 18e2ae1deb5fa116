"""Does the suite notice a wrong line? Lines drawn at random are made wrong, one at a time.

    python -m tests.tools.mutated_lines --seed 16 --count 60 --into ordinary.json
    python -m tests.tools.mutated_lines --seed 17 --count 40 --subtle --list
    python -m tests.tools.mutated_lines --again ordinary.json --into after.json

The lines come from all rooms (folders) of the product, as many from each as it has. All tests run
once to learn which reach them; then each line is made wrong in a copy of the tree, and the tests
beside its file are run, then those that reach it. What fails only with the line wrong has noticed.
``--again`` takes the lines of an earlier run, wherever they have been moved since. What only a
framework can notice is asked in its environment, for those that have escaped so far:

    python -m tests.tools.mutated_lines --again before.json --escaped --into torch.json \
        --python .venv-torch/bin/python --words '-m keras_torch' --places tests/keras tests/loops

A run that was ended goes on where it was, given the same ``--into``.
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
    files_of_the_tree,
    noticed_by,
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


def main(words: Sequence[str] | None = None) -> int:
    """0 once every line has been diagnosed."""
    asked = _parser().parse_args(words)
    entries = _entries(asked)
    if asked.list:
        print("\n".join(str(_mutation(entry)) for entry in entries))
        return 0
    python = str(Path(asked.python).absolute())
    words = tuple(shlex.split(asked.words))
    suite = Suite(python, words, tuple(asked.places), asked.test_s, asked.line_s)
    with tempfile.TemporaryDirectory() as folder:
        trees = [Scratch(Path(folder, str(number)), suite) for number in range(asked.at_once)]
        _judge(entries, trees, asked)
    _say_shares(entries)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mutated_lines",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=16, help="draws other lines (default: 16)")
    parser.add_argument("--count", type=int, default=60, help="lines (default: 60)")
    parser.add_argument("--subtle", action="store_true", help="boundaries, bounds, tidying up")
    parser.add_argument("--list", action="store_true", help="only say what would be made wrong")
    parser.add_argument("--into", type=Path, help="the file that keeps what was found")
    parser.add_argument("--again", type=Path, help="take the lines that are in this file")
    parser.add_argument("--escaped", action="store_true", help="of --again only what escaped")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the tests")
    parser.add_argument("--words", default="", help="more words for pytest")
    parser.add_argument("--places", nargs="+", default=PLACES, help="where the tests are")
    parser.add_argument("--test-s", type=float, default=60.0, help="seconds a test may take")
    parser.add_argument("--line-s", type=float, default=180.0, help="seconds for all of a line")
    parser.add_argument("--marks-s", type=float, default=1200.0, help="seconds to run all once")
    parser.add_argument("--at-once", type=int, default=2, help="lines side by side")
    return parser


def _entries(asked: argparse.Namespace) -> list[Entry]:
    """The lines to try: kept from a run that was ended, taken from an earlier one, or drawn."""
    if asked.into is not None and asked.into.exists():
        kept: list[Entry] = json.loads(asked.into.read_text(encoding="utf-8"))
        return kept
    if asked.again is None:
        chosen = drawn(_all_mutations(subtle=asked.subtle), asked.count, asked.seed)
    else:
        earlier = json.loads(asked.again.read_text(encoding="utf-8"))
        wanted = [e for e in earlier if not asked.escaped or _escaped(e)]
        present = [*_all_mutations(subtle=False), *_all_mutations(subtle=True)]
        again = [(entry, found_again(_mutation(entry), present)) for entry in wanted]
        for entry in (entry for entry, mutation in again if mutation is None):
            print(f"no such line any more: {_mutation(entry)}")
        chosen = [mutation for _, mutation in again if mutation is not None]
    return [asdict(mutation) | {"reached": None, "noticed": None} for mutation in chosen]


def _all_mutations(*, subtle: bool) -> list[Mutation]:
    names = [name for name in files_of_the_tree() if name.endswith(".py")]
    return [
        mutation
        for name in names
        if not name.startswith(NOT_THE_PRODUCT) and not (ROOT / name).is_symlink()
        for mutation in mutations_of(name, (ROOT / name).read_text("utf-8"), subtle=subtle)
    ]


def _mutation(entry: Entry) -> Mutation:
    return Mutation(**{field.name: entry[field.name] for field in fields(Mutation)})


def _judge(entries: list[Entry], trees: Sequence[Scratch], asked: argparse.Namespace) -> None:
    if any(entry["reached"] is None for entry in entries):
        mutations = [_mutation(entry) for entry in entries]
        reached = tests_that_reach(mutations, trees[0], asked.marks_s)
        for entry, tests in zip(entries, reached, strict=True):
            entry["reached"] = tests
        _keep(entries, asked.into)
    free: queue.Queue[Scratch] = queue.Queue()
    for tree in trees:
        free.put(tree)

    def diagnose(entry: Entry) -> None:
        tree = free.get()
        try:
            entry["noticed"] = noticed_by(_mutation(entry), entry["reached"], tree) or ESCAPED
        finally:
            free.put(tree)
        reported = f"{entry['noticed']} (of {len(entry['reached'])} tests that reach it)"
        print(f"{_mutation(entry)}\n    {reported}", flush=True)
        _keep(entries, asked.into)

    with ThreadPoolExecutor(len(trees)) as side_by_side:
        list(side_by_side.map(diagnose, [e for e in entries if e["noticed"] is None]))


def _escaped(entry: Entry) -> bool:
    return str(entry["noticed"]).startswith(ESCAPED)


def _keep(entries: list[Entry], into: Path | None) -> None:
    if into is not None:
        into.write_text(json.dumps(entries, indent=1), encoding="utf-8")


def _say_shares(entries: list[Entry]) -> None:
    lines = Counter(str(Path(entry["path"]).parent) for entry in entries)
    noticed = [entry for entry in entries if not _escaped(entry)]
    caught = Counter(str(Path(entry["path"]).parent) for entry in noticed)
    for room, count in sorted(lines.items()):
        print(f"{caught[room]:4} of {count:3}  {room}")
    print(f"{len(noticed):4} of {len(entries):3}  all: {len(noticed) / max(1, len(entries)):.0%}")


if __name__ == "__main__":
    sys.exit(main())
