"""What the shell says to the tests: the few words that are meant for them, and nothing else."""

from __future__ import annotations

import os
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
"""What each says stands in ``tests/README.md``."""
OF_GPUMON: Final = "GPUMON_"
OF_LAUNCHERS: Final = ("SLURM_", "OMPI_", "PMI_", "PMIX_", "MV2_", "TORCHELASTIC_")
"""What a job says to its ranks: whoever tests in a shell of one would be taken for a rank."""
BESIDE: Final = frozenset(
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "DSTAT_GPU"}
    | {"XDG_RUNTIME_DIR", "XDG_DATA_HOME", "COLUMNS", "LINES"}
)
HERE: Final = "127.0.0.1,localhost,::1"


def forget_the_shell() -> None:
    """Take what the shell says out of this process' environment, and so out of its children's."""
    for name in list(os.environ):
        is_printed = name in BESIDE or name.startswith((OF_GPUMON, *OF_LAUNCHERS))
        if is_printed and name not in SWITCHES:
            del os.environ[name]
    for name in ("no_proxy", "NO_PROXY"):  # a proxy knows of no daemon on this machine
        os.environ[name] = ",".join(filter(None, (os.environ.get(name), HERE)))
