"""Where this training puts its ring: the first folder that may be trusted."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.core.ring.runtime_paths import (
    PHASES,
    PRIVATE_MODE,
    SYSTEM_FOLDER,
    FolderFacts,
    distrust,
    explicit_folder,
    is_shared,
    writer_folders,
)
from gpumon.errors import RingError

_SHARED_RING: Final = 0o644
_PRIVATE_RING: Final = 0o600


class RingFolder(NamedTuple):
    """A ``phases`` folder, and the mode that a ring in it gets."""

    path: Path
    ring_mode: int


def find_ring_folder(environ: Mapping[str, str], uid: int) -> RingFolder:
    """Find, or make, the ``phases`` folder for this user's rings.

    Raises:
        RingError: There is none that can be made and trusted; says why.
    """
    explicit = explicit_folder(environ) is not None
    folders = writer_folders(
        environ, uid, system_folder_has_phases=(SYSTEM_FOLDER / PHASES).is_dir()
    )
    troubles = []
    for folder in folders:
        found = _usable(folder, uid, explicit=explicit)
        if isinstance(found, RingFolder):
            return found
        troubles.append(found)
    raise RingError("; ".join(troubles))


def _usable(folder: Path, uid: int, *, explicit: bool) -> RingFolder | str:
    try:
        return _checked(folder, uid, explicit=explicit)
    except RingError as error:
        return str(error)
    except FileExistsError as error:
        return f"{error.filename} is not a folder"
    except OSError as error:
        return f"{folder}: {error.strerror or error}"


def _checked(folder: Path, uid: int, *, explicit: bool) -> RingFolder:
    phases = folder / PHASES
    if folder != SYSTEM_FOLDER:
        folder.mkdir(mode=PRIVATE_MODE, parents=explicit, exist_ok=True)
    _insist_on_trust(folder, uid, explicit=explicit)
    phases.mkdir(mode=PRIVATE_MODE, exist_ok=True)
    facts = _insist_on_trust(phases, uid, explicit=explicit)
    if not os.access(phases, os.W_OK | os.X_OK):
        raise RingError(f"{phases} cannot be written")
    return RingFolder(phases, _SHARED_RING if is_shared(facts) else _PRIVATE_RING)


def _insist_on_trust(folder: Path, uid: int, *, explicit: bool) -> FolderFacts:
    status = folder.lstat()
    facts = FolderFacts(status.st_mode, status.st_uid)
    trouble = distrust(folder, facts, uid=uid, explicit=explicit)
    if trouble is not None:
        raise RingError(trouble)
    return facts
