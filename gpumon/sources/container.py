"""Whether this process lives in a container, as far as files and variables tell."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_MARKS: Final = {"/.dockerenv": "Docker", "/run/.containerenv": "Podman"}
_GROUPS: Final = re.compile(r"docker|kubepods|containerd|libpod|lxc")


def container_words(environ: Mapping[str, str], root: Path = Path("/")) -> str | None:
    """What shows that this is a container, such as ``"Docker (/.dockerenv)"``; ``None``: nothing.

    Args:
        environ: Environment variables.
        root: Where the marks and ``proc`` lie.
    """
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return "Kubernetes ($KUBERNETES_SERVICE_HOST)"
    for mark, name in _MARKS.items():
        if (root / mark[1:]).exists():
            return f"{name} ({mark})"
    try:
        groups = (root / "proc/1/cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        groups = ""
    found = _GROUPS.search(groups)
    return f"{found[0]} (/proc/1/cgroup)" if found else None
