"""The machine whose driver misbehaves."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fakenvml.generations import DriverGeneration
from tests.faults.faulty_machine import Machine


@pytest.fixture
def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@pytest.fixture
def machine_of_both_generations(
    tmp_path: Path,
    library_of: Callable[[DriverGeneration], Path],
    driver_generation: DriverGeneration,
) -> Iterator[Machine]:
    """As ``machine``, with the present driver and then with an old one."""
    made = Machine(tmp_path, library_of(driver_generation).parent, driver_generation)
    yield made
    made.fake.close()


@pytest.fixture
def machine(tmp_path: Path, fake_library: Path) -> Iterator[Machine]:
    made = Machine(tmp_path, fake_library.parent)
    yield made
    made.fake.close()
