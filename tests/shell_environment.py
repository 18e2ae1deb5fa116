"""The variables of the shell that reach the tests; all others are removed."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from typing import Final

SWITCHES: Final = frozenset(
    {
        "GPUMON_FUZZ_SECONDS",
        "GPUMON_FUZZ_SEED",
        "GPUMON_PUBLIC_LOGS",
        "GPUMON_REQUIRE_KERAS",
        "GPUMON_SCREENSHOTS",
        "GPUMON_SOAK_SECONDS",
        "GPUMON_UPDATE_GOLDEN",
        "GPUMON_WHOLE_TABLE",
    }
)
"""``tests/README.md`` explains them."""
OF_GPUMON: Final = "GPUMON_"
OF_LAUNCHERS: Final = ("SLURM_", "OMPI_", "PMI_", "PMIX_", "MV2_", "TORCHELASTIC_")
"""Of jobs: a shell of a job would look like a rank."""
OTHERS: Final = frozenset(
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "DSTAT_GPU"}
    | {"XDG_RUNTIME_DIR", "XDG_DATA_HOME", "STATE_DIRECTORY", "COLUMNS", "LINES"}
)
HERE: Final = "127.0.0.1,localhost,::1"


def forget_the_shell() -> None:
    """Remove the shell's variables from this process and so from its children."""
    for name in list(os.environ):
        is_of_shell = name in OTHERS or name.startswith((OF_GPUMON, *OF_LAUNCHERS))
        if is_of_shell and name not in SWITCHES:
            del os.environ[name]
    # Daemons that a test starts keep nothing in the home folder.
    state = tempfile.mkdtemp(prefix="gpumon-tests-state-")
    atexit.register(shutil.rmtree, state, ignore_errors=True)
    os.environ["XDG_STATE_HOME"] = state
    for name in ("no_proxy", "NO_PROXY"):  # a proxy cannot reach a daemon on this machine
        os.environ[name] = ",".join(filter(None, (os.environ.get(name), HERE)))
