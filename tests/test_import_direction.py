"""Imports point down only, read from the source."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.programs import ran_python

ROOT = Path(__file__).resolve().parent.parent

LAYERS = ("errors", "core", "sources", "pipeline", "outlets", "cli")
FACADE = "__init__"
PACKAGES_UPWARDS = {
    "gpumon.core": (
        "clock", "phase", "verdict", "settings", "wording", "owner_quotas", "ring_format", "waits",
        "sample", "stacks", "reading", "attribution", "accounting", "device", "log_summary",
        "report", "state", "diagnosis", "fleet", "view", "codecs",
    ),
    "gpumon.sources.nvml": (
        "pynvml_module", "codes", "binding", "stamp_clock", "fields", "busy", "drain_schedule",
        "power", "sample_rings", "gpu", "mig", "inventory", "slow_reader", "tick_reader",
        "events", "reopening", "source",
    ),
    "trainer_hooks": (
        "devices", "ring", "batches", "balance", "ddp", "taps", "prefetch", "trainers", "phases",
        "accelerate", "huggingface", "lightning", "keras", "multi_gpu", "injected", FACADE,
        "trainer_bench", "examples", "old_names",
    ),
}  # fmt: skip
"""Modules of a package: each imports only from those before it."""

OURS = ("gpumon", "trainer_hooks", "dstat_plugins", "tests", "benchmarks", "grafana")
VERSION = "gpumon.__version__"
HOOKS_MAY_IMPORT = ("gpumon.core", "gpumon.errors", "trainer_hooks")
DEVICE_COUNT = ROOT / "trainer_hooks/devices.py"
BINDING = "gpumon.sources.nvml.binding"

LAYER_FILES = [p for p in ROOT.glob("gpumon/**/*.py") if p.parent != ROOT / "gpumon"]
LAYER_FILES.append(ROOT / "gpumon/errors.py")
HOOK_FILES = [*ROOT.glob("trainer_hooks/**/*.py")]


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def imports_of(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@cache
def imports_of_file(path: Path) -> list[str]:
    return list(imports_of(ast.parse(path.read_text(encoding="utf-8"))))


def is_within(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def layer_of(module: str) -> int | None:
    package, _, rest = module.partition(".")
    name = rest.split(".")[0]
    return LAYERS.index(name) if package == "gpumon" and name in LAYERS else None


def upward_imports(module: str, imported: list[str]) -> list[str]:
    """Imports from a higher layer, or from our code outside the layers."""
    here = layer_of(module)
    assert here is not None, f"{module}: add the new package to LAYERS"
    upward = []
    for name in imported:
        layer = layer_of(name)
        is_outside = layer is None and is_within(name, *OURS) and name != VERSION
        if is_outside or (layer is not None and layer > here):
            upward.append(name)
    return upward


def parts_of(package: str, imported: list[str]) -> set[str]:
    """The modules of a package among the imports; another name is one of its ``__init__``."""
    names = {
        name.removeprefix(f"{package}.").split(".")[0]
        for name in imported
        if is_within(name, package)
    }
    return {name if name in PACKAGES_UPWARDS[package] else FACADE for name in names}


def test_no_layer_imports_from_one_above_it() -> None:
    upward = {
        module: found
        for module, path in ((module_of(path), path) for path in LAYER_FILES)
        if (found := upward_imports(module, imports_of_file(path)))
    }

    assert upward == {}
    assert {module.split(".")[1] for module in map(module_of, LAYER_FILES)} == {*LAYERS}


def test_an_upward_import_is_found() -> None:
    upward = ["gpumon.outlets.metrics.prometheus.Exporter", "gpumon.Sampler", "tests.daemon"]

    assert upward_imports("gpumon.core.sample", ["json", "gpumon.core.phase", *upward]) == upward


def test_importing_gpumon_loads_nothing_else_of_it() -> None:
    loaded = ran_python("-c", "import gpumon, sys; print(*sys.modules)").stdout.split()

    assert [name for name in loaded if is_within(name, "gpumon")] == ["gpumon"]


@pytest.mark.parametrize("package", PACKAGES_UPWARDS)
def test_no_module_imports_from_one_above_it(package: str) -> None:
    folder, order = ROOT.joinpath(*package.split(".")), PACKAGES_UPWARDS[package]
    upward: dict[str, set[str]] = {}
    for number, part in enumerate(order):
        for path in sorted(folder.glob(f"{part}/**/*.py")) or [folder / f"{part}.py"]:
            found = parts_of(package, imports_of_file(path)) & {*order[number + 1 :]}
            upward |= {str(path.relative_to(folder)): found} if found else {}

    assert upward == {}


@pytest.mark.parametrize("package", PACKAGES_UPWARDS)
def test_every_module_has_its_place(package: str) -> None:
    folder = ROOT.joinpath(*package.split("."))
    parts = {
        path.relative_to(folder).parts[0].removesuffix(".py") for path in folder.glob("**/*.py")
    }

    assert parts | {FACADE} == {*PACKAGES_UPWARDS[package], FACADE}


def test_no_files_import_each_other_in_a_circle() -> None:
    """Not even by an import within a function, which waits until someone calls it."""
    modules = {module_of(path): path for path in (*LAYER_FILES, *HOOK_FILES)}
    imported = {
        module: {
            found
            for name in imports_of_file(path)
            for found in (name, name.rpartition(".")[0])
            if found in modules
        }
        for module, path in modules.items()
    }

    TopologicalSorter(imported).prepare()  # raises CycleError, which names the circle


def test_hooks_import_only_the_lowest_layers() -> None:
    wrong = {
        str(path.relative_to(ROOT)): name
        for path in HOOK_FILES
        for name in imports_of_file(path)
        if is_within(name, *OURS) and not is_within(name, *HOOKS_MAY_IMPORT)
        if path != DEVICE_COUNT or not is_within(name, BINDING)
    }

    assert wrong == {}


def test_counting_devices_imports_the_driver_only_when_called() -> None:
    tree = ast.parse(DEVICE_COUNT.read_text(encoding="utf-8"))
    at_import = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]

    assert [
        name for node in at_import for name in imports_of(node) if is_within(name, BINDING)
    ] == []


def test_the_dstat_plugin_needs_only_the_standard_library() -> None:
    imported = {
        name.split(".")[0]
        for path in ROOT.glob("dstat_plugins/*.py")
        for name in imports_of_file(path)
    }

    assert imported - sys.stdlib_module_names == set()
