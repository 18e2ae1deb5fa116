"""The table of versions, and the environments that it comes from."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.tools import run_versions
from tests.tools.run_versions import LANES, PAGE, RESULTS, outcome_of, table_of, with_table


def results() -> dict[str, Any]:
    told: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return told


def test_the_page_has_the_table_of_the_last_runs() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert with_table(page, results()) == page
    assert set(results()) == set(LANES)


def test_every_lane_passed_what_it_last_ran() -> None:
    assert [name for name, result in results().items() if not result["passed"]] == []


def test_a_row_names_what_was_installed_and_what_became_of_it() -> None:
    result = {
        "date": "2026-11-29",
        "passed": False,
        "outcome": "1 failed, 12 passed",
        "versions": {"keras": "3.15.1", "keras-nightly": "3.16.0.dev1", "tensorflow-cpu": "2.21.0"},
    }

    assert table_of({"tensorflow-next": result}).splitlines()[2:] == [
        "| `PhaseTagger` of Keras | pre-release | keras-nightly 3.16.0.dev1, tensorflow-cpu 2.21.0 "
        "| 1 failed, 12 passed | 2026-11-29 |"
    ]


@pytest.mark.parametrize(
    ("printed", "outcome"),
    [
        ("..\n13 passed, 815 deselected in 16.65s", "13 passed"),
        ("E\n2 failed, 1 passed, 3 errors in 0.12s", "2 failed, 1 passed, 3 errors"),
        ("5 deselected in 0.10s", "no test ran"),
    ],
)
def test_an_outcome_is_pytests_last_line(printed: str, outcome: str) -> None:
    assert outcome_of(printed) == outcome


def test_the_oldest_versions_are_those_that_the_package_asks_for() -> None:
    tomllib = pytest.importorskip("tomllib")  # from Python 3.11 on
    package = tomllib.loads((run_versions.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = package["project"]["optional-dependencies"]
    floors = {
        name: floor.partition(";")[0]
        for extra in ("keras", "tensorflow", "lightning", "huggingface")
        for name, _, floor in (word.partition(">=") for word in extras[extra])
    }
    tried = {
        name: version.removesuffix(".*")
        for lane in LANES.values()
        if lane.which == "oldest" and "multi_gpu" not in lane.marked
        for name, _, version in (word.partition("==") for word in lane.requires)
    }

    for name, floor in floors.items():
        found = tried["tensorflow-cpu" if name == "tensorflow" else name]
        assert found.split(".")[:2] == floor.split(".")[:2], name


def test_an_unknown_lane_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run_versions.main(["sofa"])

    assert "there is no lane sofa; there are tensorflow-oldest," in capsys.readouterr().err
