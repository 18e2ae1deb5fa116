"""The fake NVML, for whichever test asks for it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakenvml.build import NoCompilerError, build_fake
from tests.fakenvml.control import FakeNvml
from tests.needs import missing


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Beside other tests, those that need the machine alone wait for a run of their own."""
    if hasattr(config, "workerinput"):
        alone = [item for item in items if item.get_closest_marker("alone")]
        config.hook.pytest_deselected(items=alone)
        items[:] = [item for item in items if item not in alone]


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fake libnvidia-ml.so.1, compiled."""
    try:
        return build_fake(tmp_path_factory.mktemp("fakenvml"))
    except NoCompilerError as error:
        missing(str(error))
        raise


@pytest.fixture
def fake_nvml(
    fake_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeNvml]:
    """Two fake GPUs, idle, that NVML shows to this very process.

    A library that is loaded already is found by its name before any folder is
    searched: so pynvml, asking for libnvidia-ml.so.1, gets this one.
    """
    import pynvml

    ctypes.CDLL(str(fake_library))
    with FakeNvml(tmp_path / "gpus.control", gpus=2) as fake:
        monkeypatch.setenv("FAKENVML_CTL", str(fake.path))
        yield fake
        # The next test's control file is mapped when NVML is opened afresh.
        try:
            while True:
                pynvml.nvmlShutdown()
        except pynvml.NVMLError:
            pass
