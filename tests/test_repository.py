"""The layout that people were promised, and the habits that no linter knows."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from gpumon import __version__
from tests.command_line import Shell
from tests.programs import ROOT, ran
from tests.tools.run_suites import SUITES, TRAINING_ROOMS

PROMISED = {"dstat_plugins", "gpumon", "trainer_hooks", "tests", "grafana", "README.md", "setup.py"}
EXPECTED_BESIDE = {
    ".ci",
    ".editorconfig",
    ".gitignore",
    ".pre-commit-config.yaml",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "SECURITY.md",
    "benchmarks",
    "deploy",
    "docs",
    "examples",
    "prometheus",
    "pyproject.toml",
}
NAMES_THAT_SAY_NOTHING = {"utils.py", "helpers.py", "common.py", "misc.py"}
LATER = re.compile(r"\b(TODO|FIXME|XXX)\b")
TARGETS = {
    "demo", "demo-keras", "test", "check", "truth", "bench", "soak", "gpu", "golden", "clean",
}  # fmt: skip
COMMANDS = ("serve", "analyze", "report", "record", "replay", "doctor", "demo", "dstat")


def repository_files() -> list[Path]:
    """What git has, or would add: ignored files are no one's business."""
    listed = ran("git", "ls-files", "--cached", "--others", "--exclude-standard")
    paths = [ROOT / name for name in sorted(set(listed.stdout.splitlines()))]
    return [path for path in paths if path.is_file()]


FILES = repository_files()
PYTHON_FILES = [path for path in FILES if path.suffix == ".py"]
PAGES = [path for path in FILES if path.suffix == ".md"]

ONE_FOR_EACH_TRAINER = {"PhaseTagger", "RatioBalancer"}
MIRRORED = {"core", "sources", "pipeline", "outlets", "cli", "trainer_hooks"}


def is_in(path: Path, folder: Path | str) -> bool:
    return (ROOT / folder) in path.parents


PRODUCT = [path for path in PYTHON_FILES if is_in(path, "gpumon") or is_in(path, "trainer_hooks")]
ROOMS = sorted({path.parent for path in PRODUCT})


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


class TestTheTopLevel:
    def test_holds_what_was_promised(self) -> None:
        assert {path.name for path in ROOT.iterdir()} >= PROMISED

    def test_holds_nothing_else_than_what_people_expect(self) -> None:
        present = {path.relative_to(ROOT).parts[0] for path in FILES}

        assert present - PROMISED - EXPECTED_BESIDE == set()


class TestTheRooms:
    @pytest.mark.parametrize("room", ROOMS, ids=named)
    def test_say_what_lives_there(self, room: Path) -> None:
        assert ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8")))

    def test_are_mirrored_by_the_unit_tests(self) -> None:
        units = ROOT / "tests" / "unit"
        folders = {path.parent.relative_to(units) for path in PYTHON_FILES if is_in(path, units)}
        places = {folder for folder in folders if folder.parts and folder.parts[0] in MIRRORED}
        rooms = [
            (ROOT if place.parts[0] == "trainer_hooks" else ROOT / "gpumon") / place
            for place in sorted(places)
        ]

        assert rooms
        assert [
            named(room)
            for room in rooms
            if not room.is_dir() and not room.with_suffix(".py").is_file()
        ] == []

    def test_share_no_name_of_a_class(self) -> None:
        classes: dict[str, list[str]] = {}
        for path in PRODUCT:
            for statement in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(statement, ast.ClassDef) and not statement.name.startswith("_"):
                    classes.setdefault(statement.name, []).append(named(path))

        twice = {name: files for name, files in classes.items() if len(files) > 1}
        assert set(twice) <= ONE_FOR_EACH_TRAINER


class TestEachFile:
    def test_has_a_name_that_says_what_is_in_it(self) -> None:
        assert [named(path) for path in FILES if path.name in NAMES_THAT_SAY_NOTHING] == []

    def test_leaves_nothing_for_later(self) -> None:
        text_files = [
            path
            for path in FILES
            if path.suffix in {".py", ".md", ".sh", ".yml", ".yaml", ".c", ".js"}
        ]
        later = [
            f"{named(path)}:{number}"
            for path in text_files
            if path != Path(__file__).resolve()
            for number, line in enumerate(
                path.read_text(encoding="utf-8", errors="replace").splitlines(), 1
            )
            if LATER.search(line)
        ]

        assert later == []


class TestThePages:
    @pytest.mark.parametrize("page", PAGES, ids=named)
    def test_link_only_to_what_is_there(self, page: Path) -> None:
        targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
        local = [
            target for target in targets if "://" not in target and not target.startswith("mailto:")
        ]

        assert [target for target in local if not (page.parent / target).exists()] == []

    @pytest.mark.parametrize("page", PAGES, ids=named)
    def test_never_send_anybody_to_the_stranger_of_the_same_name(self, page: Path) -> None:
        strangers = re.findall(
            r"(?:pip|pipx|uv)\s+(?:tool\s+)?install\s+'?gpumon(?!-starvation)\b",
            page.read_text(encoding="utf-8"),
        )

        assert strangers == []

    def test_the_changelog_knows_the_version(self) -> None:
        heads = re.findall(r"^## .*", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)

        assert any(__version__ in head for head in heads)

    def test_of_decisions_are_all_in_their_index(self) -> None:
        folder = ROOT / "docs" / "decisions"
        index = (folder / "README.md").read_text(encoding="utf-8")
        pages = [path.name for path in PAGES if path.parent == folder and path.stem != "README"]

        assert pages
        assert [name for name in pages if f"({name})" not in index] == []


class TestTheMakefile:
    def test_lists_its_targets_when_asked_for_nothing(self) -> None:
        listed = re.findall(r"^  make ([\w-]+)\s+\S", ran("make").stdout, re.MULTILINE)

        assert TARGETS - {*listed} == set()

    def test_gives_ci_nothing_that_a_contributor_would_not_run(self) -> None:
        script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
        commands = [
            line
            for line in script.splitlines()
            if line and not line.startswith(("#", "set ", "cd ", "export "))
        ]

        assert commands == ["make check test"]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_each_command_ends_with_an_example(gpumon: Shell, command: str) -> None:
    shown = gpumon(command, "--help")

    assert shown.code == 0
    assert f"gpumon {command}" in shown.out.partition("example:\n  ")[2]


class TestATestThatNeedsAFramework:
    def test_lies_where_its_suite_looks_for_it(self) -> None:
        looked_at = (*TRAINING_ROOMS, "tests/multi_gpu", "tests/gpu", "tests/test_repository.py")

        marked = [
            named(path)
            for path in PYTHON_FILES
            if re.search(r"mark\.(keras_|multi_gpu)", path.read_text(encoding="utf-8"))
        ]

        assert len(marked) > 20
        assert [path for path in marked if not path.startswith(looked_at)] == []


class TestATestThatNeedsTheMachineAlone:
    def test_lies_where_a_suite_of_those_looks_for_it(self) -> None:
        alone = [part for parts in SUITES.values() for part in parts if part.is_alone]
        texts = {path: path.read_text(encoding="utf-8") for path in PYTHON_FILES}
        marked = {path: text for path, text in texts.items() if re.search(r"mark\.alone\b", text)}

        def is_found(path: Path, text: str) -> bool:
            frameworks = set(re.findall(r"mark\.(keras_[a-z]+|multi_gpu)\b", text))
            return any(
                named(path).startswith(part.rooms)
                and (not frameworks or not frameworks.isdisjoint(part.marked.split()))
                for part in alone
            )

        assert len(marked) > 10
        assert [named(path) for path, text in marked.items() if not is_found(path, text)] == []
