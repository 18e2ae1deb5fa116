"""Imports point down only: read from the source, whoever runs first."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

GROUND_UP = (
    "gpumon.errors",
    "gpumon.core",
    "gpumon.sources",
    "gpumon.pipeline",
    "gpumon.outlets",
    "gpumon.cli",
)
HEIGHT = {name: height for height, name in enumerate(GROUND_UP)}
CORE_GROUND_UP = (
    "clock",
    "phase",
    "verdict",
    "settings",
    "wording",
    "ring_format",
    "host",
    "sample",
    "attribution",
    "accounting",
    "device",
    "log_summary",
    "report",
    "state",
    "diagnosis",
    "codecs",
)
NVML_GROUND_UP = (
    "pynvml_module",
    "codes",
    "binding",
    "stamp_clock",
    "fields",
    "busy",
    "sample_rings",
    "gpu",
    "mig",
    "inventory",
    "slow_reader",
    "tick_reader",
    "events",
    "reopening",
    "source",
)
FRONT_DOOR = "__init__"
HOOKS_GROUND_UP = (
    "devices",
    "ring",
    "batches",
    "balance",
    "ddp",
    "taps",
    "prefetch",
    "trainers",
    "phases",
    "accelerate",
    "huggingface",
    "lightning",
    "keras",
    "multi_gpu",
    FRONT_DOOR,
    "trainer_bench",
    "examples",
    "old_names",
)
ROOMS_GROUND_UP = {
    "gpumon.core": CORE_GROUND_UP,
    "gpumon.sources.nvml": NVML_GROUND_UP,
    "trainer_hooks": HOOKS_GROUND_UP,
}
"""Rooms within a package: each imports from those before it only."""
DOORS = {"gpumon/__init__.py", "gpumon/__main__.py"}
"""The package's own front door and back door: checked by sentences of their own."""

FLOOR_FILES = sorted(
    p for p in ROOT.glob("gpumon/**/*.py") if str(p.relative_to(ROOT)) not in DOORS
)
HOOK_FILES = sorted(ROOT.glob("trainer_hooks/**/*.py"))
PLUGIN_FILES = sorted(ROOT.glob("dstat_plugins/*.py"))

OURS = ("gpumon", "trainer_hooks", "dstat_plugins", "tests", "benchmarks", "grafana")
VERSION = "gpumon.__version__"
HOOKS_MAY_IMPORT = ("gpumon.core", "gpumon.errors", "trainer_hooks")
DEVICE_COUNT = "trainer_hooks/devices.py"
BINDING = "gpumon.sources.nvml.binding"


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def floor_of(module: str) -> int | None:
    return HEIGHT.get(".".join(module.split(".")[:2]))


def imports_of(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@cache
def imports_of_file(path: Path) -> list[str]:
    return list(imports_of(ast.parse(path.read_text(encoding="utf-8"))))


def is_within(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def upward_imports(module: str, imported: list[str]) -> list[str]:
    here = floor_of(module)
    assert here is not None, f"{module}: a new room needs a place in GROUND_UP"
    upward = []
    for name in imported:
        there = floor_of(name)
        ours_but_no_floor = there is None and is_within(name, OURS) and name != VERSION
        if ours_but_no_floor or (there is not None and there > here):
            upward.append(name)
    return upward


@pytest.mark.parametrize("path", FLOOR_FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_module_imports_from_a_floor_above_it(path: Path) -> None:
    assert upward_imports(module_of(path), imports_of_file(path)) == []


def test_an_upward_import_would_be_seen() -> None:
    source = ["gpumon.core.sample.Frame", "gpumon.outlets.metrics.prometheus.Exporter", "json"]

    assert upward_imports("gpumon.core.sample", source) == [
        "gpumon.outlets.metrics.prometheus.Exporter"
    ]
    assert upward_imports("gpumon.outlets.web", source) == []


def test_an_import_of_the_front_door_would_be_seen() -> None:
    assert upward_imports("gpumon.core.sample", ["gpumon.Sampler"]) == ["gpumon.Sampler"]


def test_the_front_door_opens_on_the_ground_floor_only() -> None:
    front = imports_of_file(ROOT / "gpumon" / "__init__.py")

    assert [
        name for name in front if is_within(name, ("gpumon",)) and floor_of(name) not in (0, 1)
    ] == []


def rooms_of(package: str, imported: list[str]) -> set[str]:
    """The rooms of a package among what was imported; a name of its own is its front door's."""
    names = {
        name.removeprefix(f"{package}.").split(".")[0]
        for name in imported
        if is_within(name, (package,))
    }
    return {name if name in ROOMS_GROUND_UP[package] else FRONT_DOOR for name in names}


@pytest.mark.parametrize(
    ("package", "room"),
    [(package, room) for package, rooms in ROOMS_GROUND_UP.items() for room in rooms],
)
def test_no_room_imports_from_one_above_it(package: str, room: str) -> None:
    folder = ROOT.joinpath(*package.split("."))
    order = ROOMS_GROUND_UP[package]
    files = sorted(folder.glob(f"{room}/**/*.py")) or [folder / f"{room}.py"]
    above = set(order[order.index(room) + 1 :])

    assert {
        str(path.relative_to(folder)): found
        for path in files
        if (found := rooms_of(package, imports_of_file(path)) & above)
    } == {}


@pytest.mark.parametrize("package", ROOMS_GROUND_UP)
def test_every_room_has_its_place(package: str) -> None:
    folder = ROOT.joinpath(*package.split("."))
    files = [path.relative_to(folder) for path in folder.glob("**/*.py")]
    rooms = {path.parts[0].removesuffix(".py") for path in files}

    assert rooms - {FRONT_DOOR} == set(ROOMS_GROUND_UP[package]) - {FRONT_DOOR}


def test_a_room_above_would_be_seen() -> None:
    imported = ["trainer_hooks.keras.tagging.Tagging", "trainer_hooks.PhaseTagger", "json"]

    assert rooms_of("trainer_hooks", imported) == {"keras", FRONT_DOOR}


def test_no_files_import_each_other_in_a_circle() -> None:
    """Not even by an import within a function, which waits until someone calls it."""
    modules = {module_of(path): path for path in (*FLOOR_FILES, *HOOK_FILES)}
    imported = {
        module: {
            found
            for name in imports_of_file(path)
            for found in (name, name.rpartition(".")[0])
            if found in modules
        }
        for module, path in modules.items()
    }
    order = TopologicalSorter(imported)

    order.prepare()  # raises CycleError, which names the circle


@pytest.mark.parametrize("path", HOOK_FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_hook_imports_nothing_of_ours_but_the_ground_floor(path: Path) -> None:
    allowed: tuple[str, ...] = HOOKS_MAY_IMPORT
    if str(path.relative_to(ROOT)) == DEVICE_COUNT:
        allowed = (*allowed, BINDING)

    ours = [name for name in imports_of_file(path) if is_within(name, OURS)]

    assert [name for name in ours if not is_within(name, allowed)] == []


def test_the_device_count_asks_nvml_only_when_it_is_called() -> None:
    tree = ast.parse((ROOT / DEVICE_COUNT).read_text(encoding="utf-8"))
    at_import = [
        statement for statement in tree.body if isinstance(statement, (ast.Import, ast.ImportFrom))
    ]

    assert [
        name for node in at_import for name in imports_of(node) if is_within(name, (BINDING,))
    ] == []


@pytest.mark.parametrize("path", PLUGIN_FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_the_dstat_plugin_needs_the_standard_library_only(path: Path) -> None:
    imported = {name.split(".")[0] for name in imports_of_file(path)}

    assert imported - set(sys.stdlib_module_names) == set()


def test_every_floor_was_looked_at() -> None:
    seen = {module_of(path).split(".")[1] for path in FLOOR_FILES}

    assert seen == {name.split(".")[1] for name in GROUND_UP}
