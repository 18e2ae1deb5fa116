"""The layout of the repository, and conventions that no linter checks."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from gpumon import __version__
from tests.command_line import Shell
from tests.programs import ROOT, ran
from tests.tools.run_suites import FRAMEWORK_TESTS, SUITES

TOP_LEVEL = {
    "dstat_plugins", "gpumon", "trainer_hooks", "tests", "grafana", "README.md", "setup.py", ".ci",
    ".editorconfig", ".gitignore", ".pre-commit-config.yaml", "ARCHITECTURE.md", "CHANGELOG.md",
    "CONTRIBUTING.md", "LICENSE", "Makefile", "SECURITY.md", "benchmarks", "deploy", "docs",
    "examples", "prometheus", "pyproject.toml",
}  # fmt: skip
VAGUE_NAMES = {"utils.py", "helpers.py", "common.py", "misc.py"}
LATER = re.compile(r"\b(TODO|FIXME|XXX)\b")
TARGETS = {
    "demo", "demo-keras", "test", "check", "truth", "bench", "soak", "gpu", "golden", "clean",
}  # fmt: skip
COMMANDS = (
    "serve",
    "top",
    "analyze",
    "why",
    "report",
    "record",
    "replay",
    "doctor",
    "run",
    "demo",
    "dstat",
)
ONE_FOR_EACH_TRAINER = {"PhaseTagger", "RatioBalancer"}
WITH_UNIT_TESTS = {"core", "sources", "pipeline", "outlets", "cli", "trainer_hooks"}


def repository_files() -> list[Path]:
    """What git tracks or would add."""
    listed = ran("git", "ls-files", "--cached", "--others", "--exclude-standard")
    paths = [ROOT / name for name in sorted(set(listed.stdout.splitlines()))]
    return [path for path in paths if path.is_file()]


FILES = repository_files()
TEXTS = {
    path: path.read_text(encoding="utf-8", errors="replace")
    for path in FILES
    if path.suffix in {".py", ".md", ".sh", ".yml", ".yaml", ".c", ".js"}
}
PYTHON = {path: text for path, text in TEXTS.items() if path.suffix == ".py"}
PAGES = {path: text for path, text in TEXTS.items() if path.suffix == ".md"}
PRODUCT = {
    path: text
    for path, text in PYTHON.items()
    if path.relative_to(ROOT).parts[0] in ("gpumon", "trainer_hooks")
}


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


class TestTheTopLevel:
    def test_has_only_the_usual_files(self) -> None:
        assert {path.relative_to(ROOT).parts[0] for path in FILES} == TOP_LEVEL


class TestPackages:
    def test_say_what_belongs_there(self) -> None:
        without = [
            named(folder)
            for folder in sorted({path.parent for path in PRODUCT})
            if not ast.get_docstring(ast.parse(PYTHON[folder / "__init__.py"]))
        ]

        assert without == []

    def test_have_unit_tests_in_folders_of_the_same_name(self) -> None:
        units = ROOT / "tests" / "unit"
        folders = {path.parent.relative_to(units) for path in PYTHON if units in path.parents}
        tested = {one for one in folders if one.parts and one.parts[0] in WITH_UNIT_TESTS}
        sources = {
            folder: (ROOT if folder.parts[0] == "trainer_hooks" else ROOT / "gpumon") / folder
            for folder in tested
        }

        assert sources
        assert [
            str(folder)
            for folder, source in sources.items()
            if not source.is_dir() and not source.with_suffix(".py").is_file()
        ] == []

    def test_share_no_name_of_a_class(self) -> None:
        classes: dict[str, list[str]] = {}
        for path, text in PRODUCT.items():
            for statement in ast.parse(text).body:
                if isinstance(statement, ast.ClassDef) and not statement.name.startswith("_"):
                    classes.setdefault(statement.name, []).append(named(path))

        twice = {name for name, files in classes.items() if len(files) > 1}
        assert twice <= ONE_FOR_EACH_TRAINER


class TestEachFile:
    def test_has_no_vague_name(self) -> None:
        assert [named(path) for path in FILES if path.name in VAGUE_NAMES] == []

    def test_has_no_generic_named_tuple_which_python_3_10_refuses(self) -> None:
        refused = [
            f"{named(path)}: {node.name}"
            for path, text in PRODUCT.items()
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.ClassDef)
            if {"NamedTuple", "Generic"} <= {ast.unparse(base).split("[")[0] for base in node.bases}
        ]

        assert refused == []

    def test_leaves_nothing_for_later(self) -> None:
        later = [
            f"{named(path)}:{number}"
            for path, text in TEXTS.items()
            if path != Path(__file__).resolve()
            for number, line in enumerate(text.splitlines(), 1)
            if LATER.search(line)
        ]

        assert later == []


class TestThePages:
    def test_link_only_to_existing_files(self) -> None:
        links = [
            (page, target)
            for page, text in PAGES.items()
            for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text)
            if "://" not in target and not target.startswith("mailto:")
        ]

        broken = [(named(page), to) for page, to in links if not (page.parent / to).exists()]
        assert broken == []

    def test_never_install_the_other_package_named_gpumon(self) -> None:
        other = re.compile(r"(?:pip|pipx|uv)\s+(?:tool\s+)?install\s+'?gpumon(?!-starvation)\b")

        assert [named(page) for page, text in PAGES.items() if other.search(text)] == []

    def test_the_changelog_has_the_version(self) -> None:
        heads = re.findall(r"^## .*", PAGES[ROOT / "CHANGELOG.md"], re.MULTILINE)

        assert any(__version__ in head for head in heads)

    def test_decisions_are_all_in_their_index(self) -> None:
        folder = ROOT / "docs" / "decisions"
        pages = [path.name for path in PAGES if path.parent == folder and path.stem != "README"]

        assert pages
        assert [name for name in pages if f"({name})" not in PAGES[folder / "README.md"]] == []


class TestTheMakefile:
    def test_lists_its_targets(self) -> None:
        listed = re.findall(r"^  make ([\w-]+)\s+\S", ran("make").stdout, re.MULTILINE)

        assert TARGETS - {*listed} == set()

    def test_is_all_that_ci_runs(self) -> None:
        script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
        lines = [line for line in script.splitlines() if line]

        assert [line for line in lines if not line.startswith(("#", "set ", "cd ", "export "))] == [
            "make check test"
        ]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_each_command_ends_with_an_example(gpumon: Shell, command: str) -> None:
    shown = gpumon(command, "--help")

    assert shown.code == 0
    assert f"gpumon {command}" in shown.out.partition("example:\n  ")[2]


class TestASuite:
    """A marked test in a folder that no suite collects would never run."""

    def test_collects_every_test_that_needs_a_framework(self) -> None:
        collected = (*FRAMEWORK_TESTS, "tests/multi_gpu", "tests/gpu", "tests/test_repository.py")
        mark = re.compile(r"mark\.(keras_|multi_gpu)")
        marked = [named(path) for path, text in PYTHON.items() if mark.search(text)]

        assert len(marked) > 20
        assert [path for path in marked if not path.startswith(collected)] == []

    def test_collects_every_test_that_must_run_alone(self) -> None:
        alone = [part for parts in SUITES.values() for part in parts if part.is_alone]
        marked = {p: text for p, text in PYTHON.items() if re.search(r"mark\.alone\b", text)}

        def is_collected(path: Path, text: str) -> bool:
            frameworks = set(re.findall(r"mark\.(keras_[a-z]+|multi_gpu)\b", text))
            return any(
                named(path).startswith(part.paths)
                and (not frameworks or not frameworks.isdisjoint(part.marked.split()))
                for part in alone
            )

        assert len(marked) > 10
        assert [named(path) for path, text in marked.items() if not is_collected(path, text)] == []
