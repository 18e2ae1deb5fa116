"""Run the tests marked ``versions`` on each supported version, and write the table of versions.

    python tests/tools/run_versions.py [--newest] [--table] [LANE...]

A lane is an environment under ``.venv-lanes``, which is kept. By default all lanes run except those
of pre-releases; ``--newest`` runs only these. The results go to ``docs/versions.json`` and into the
table in ``docs/hooks.md``; ``--table`` prints it.

Exit codes: 0, or 1 if a lane could not be installed or a test failed. Standard library only.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
LANES_FOLDER: Final = ROOT / ".venv-lanes"
RESULTS: Final = ROOT / "docs" / "versions.json"
PAGE: Final = ROOT / "docs" / "hooks.md"
BEGIN: Final = "<!-- The table of versions: `make versions` writes it. -->\n"
END: Final = "<!-- End of the table of versions. -->\n"
SHOWN: Final = (
    "keras", "keras-nightly", "tensorflow-cpu", "jax", "torch", "lightning", "transformers",
    "accelerate",
)  # fmt: skip
TAGGER: Final = "`PhaseTagger` of Keras"
RATIOS: Final = "`multi_gpu_model`"
TORCH: Final = "torch==2.13.0"
"""As in CI: other wheels need gigabytes of CUDA."""


@dataclass(frozen=True, slots=True)
class Lane:
    """One set of versions.

    Attributes:
        what: The tested part of the product.
        which: ``oldest``, ``newest`` or ``pre-release``.
        requires: Packages besides gpumon and its test tools.
        marked: The mark of the tests, besides ``versions``.
        paths: Where they are.
    """

    what: str
    which: str
    requires: tuple[str, ...]
    marked: str
    paths: tuple[str, ...] = ("tests/keras",)

    @property
    def backend(self) -> str:
        return self.marked.rpartition("keras_")[2] if "keras_" in self.marked else "tensorflow"


def _ratios(which: str, *requires: str) -> Lane:
    return Lane(RATIOS, which, requires, "multi_gpu", ("tests/multi_gpu",))


def _loops(what: str, which: str, path: str, *requires: str) -> Lane:
    return Lane(what, which, (TORCH, *requires), "keras_torch", (path,))


_LIGHTNING, _TRAINER = (
    "tests/loops/test_lightning_phases.py",
    "tests/loops/test_huggingface_phases.py",
)
LANES: Final[Mapping[str, Lane]] = {
    "tensorflow-oldest": Lane(
        TAGGER, "oldest", ("keras==3.7.0", "tensorflow-cpu==2.16.2"), "keras_tensorflow"
    ),
    "tensorflow-newest": Lane(TAGGER, "newest", ("keras", "tensorflow-cpu"), "keras_tensorflow"),
    "jax-oldest": Lane(TAGGER, "oldest", ("keras==3.7.0", "jax==0.4.30"), "keras_jax"),
    "jax-newest": Lane(TAGGER, "newest", ("keras", "jax"), "keras_jax"),
    "torch-oldest": Lane(TAGGER, "oldest", ("keras==3.7.0", TORCH), "keras_torch"),
    "torch-newest": Lane(TAGGER, "newest", ("keras", TORCH), "keras_torch"),
    "ratios-oldest": _ratios("oldest", "keras==3.14.0", "tensorflow-cpu"),
    "ratios-newest": _ratios("newest", "keras", "tensorflow-cpu"),
    "lightning-oldest": _loops(
        "Lightning", "oldest", _LIGHTNING, "lightning==2.2.*", "setuptools<81"
    ),
    "lightning-newest": _loops("Lightning", "newest", _LIGHTNING, "lightning"),
    "huggingface-oldest": _loops(
        "Hugging Face `Trainer`", "oldest", _TRAINER, "transformers==4.46.*", "accelerate==1.1.*"
    ),
    "huggingface-newest": _loops(
        "Hugging Face `Trainer`", "newest", _TRAINER, "transformers", "accelerate"
    ),
    "tensorflow-next": Lane(
        TAGGER, "pre-release", ("keras-nightly", "tensorflow-cpu"), "keras_tensorflow"
    ),
    "jax-next": Lane(TAGGER, "pre-release", ("keras-nightly", "jax"), "keras_jax"),
    "ratios-next": _ratios("pre-release", "keras-nightly", "tensorflow-cpu"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run lanes and write the results; return the exit code."""
    parser = argparse.ArgumentParser(description="Run tests on each supported version.")
    parser.add_argument("--newest", action="store_true", help="only pre-releases")
    parser.add_argument("--table", action="store_true", help="print the table of the last runs")
    parser.add_argument("lanes", nargs="*", metavar="LANE", help=", ".join(LANES))
    args = parser.parse_args(argv)
    # As in the Makefile: uv does not look where pip finds wheels.
    os.environ.setdefault("UV_FIND_LINKS", os.environ.get("PIP_FIND_LINKS", ""))
    if unknown := [name for name in args.lanes if name not in LANES]:
        parser.error(f"there is no lane {unknown[0]}; there are {', '.join(LANES)}")

    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if args.table:
        print(table_of(results), end="")
        return 0
    names = args.lanes or [
        name for name, lane in LANES.items() if (lane.which == "pre-release") is args.newest
    ]
    for name in names:
        print(f"\n=== {name}: {' '.join(LANES[name].requires)}", flush=True)
        results[name] = result_of(name)
        print(f"=== {name}: {results[name]['outcome']}", flush=True)
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")
    return int(any(not results[name]["passed"] for name in names))


def result_of(name: str) -> dict[str, Any]:
    """Make the environment of a lane if necessary, and run its tests."""
    lane, folder = LANES[name], LANES_FOLDER / name
    result = {"date": datetime.date.today().isoformat(), "passed": False, "versions": {}}
    if not _is_made(lane, folder):
        return {**result, "outcome": "cannot be installed"}
    python = folder / "bin" / "python"
    tests = ["-m", "pytest", "-q", "-m", f"{lane.marked} and versions", *lane.paths]
    variables = {"KERAS_BACKEND": lane.backend, "OMP_NUM_THREADS": "1", "GPUMON_REQUIRE_KERAS": "1"}
    done = subprocess.run(
        [python, *tests],
        cwd=ROOT,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(done.stdout if done.returncode else "".join(done.stdout.splitlines()[-1:]))
    return {
        **result,
        "versions": versions_of(python),
        "passed": done.returncode == 0,
        "outcome": outcome_of(done.stdout),
    }


def versions_of(python: Path) -> dict[str, str]:
    """The installed versions of ``SHOWN``."""
    command = [str(python), "-c", _LIST, *SHOWN]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    versions: dict[str, str] = json.loads(listed.stdout)
    return versions


_LIST: Final = """
import importlib.metadata, json, sys
there = {
    found.name.lower().replace("_", "-"): found.version
    for found in importlib.metadata.distributions()
}
print(json.dumps({name: there[name] for name in sys.argv[1:] if name in there}))
"""


def _is_made(lane: Lane, folder: Path) -> bool:
    """Make the environment, unless it has these versions; return whether that worked."""
    stamp = folder / ".requires"
    wanted = " ".join(lane.requires)
    if stamp.exists() and stamp.read_text() == wanted:
        return True
    uv, python = str(ROOT / ".venv/bin/uv"), str(ROOT / ".venv/bin/python")
    early = ["--prerelease=allow"] if lane.which == "pre-release" else []
    made = [uv, "venv", "-q", "--clear", "--python", python, str(folder)]
    install = [uv, "pip", "install", "-q", *early, "--python", str(folder)]
    for command in (made, [*install, "-e", f"{ROOT}[test]", *lane.requires]):
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            return False
    if "keras-nightly" in lane.requires:
        # Frameworks install the released Keras, which writes into the same folder.
        again = [*install, "--reinstall", "--no-deps", "keras-nightly"]
        subprocess.run(again, cwd=ROOT, check=True)
    stamp.write_text(wanted)
    return True


def outcome_of(printed: str) -> str:
    """pytest's last line, such as ``18 passed``."""
    counts = re.findall(r"\d+ (?:passed|failed|errors?)\b", printed.splitlines()[-1])
    return ", ".join(counts) or "no test ran"


def table_of(results: Mapping[str, Any]) -> str:
    """The table, a line for each lane that ran."""
    lines = ["| what | which | versions | tests | on |", "|---|---|---|---|---|"]
    for name, lane in LANES.items():
        if (result := results.get(name)) is not None:
            known = {**result["versions"]}
            if "keras-nightly" in known:
                known.pop("keras", None)
            versions = ", ".join(f"{one} {known[one]}" for one in SHOWN if one in known)
            lines.append(
                f"| {lane.what} | {lane.which} | {versions} | {result['outcome']} "
                f"| {result['date']} |"
            )
    return "\n".join(lines) + "\n"


def with_table(page: str, results: Mapping[str, Any]) -> str:
    """The page with the table between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table_of(results)}\n{END}{after}"


if __name__ == "__main__":
    sys.exit(main())
