"""What can be said of a loader without touching it: how many workers, how far ahead."""

from __future__ import annotations

import contextlib
from typing import Any, Final

from gpumon.core.ring.events import LoaderFacts

_ATTRIBUTES: Final = {
    "batch_size": "batch_size",
    "workers": "num_workers",
    "prefetch": "prefetch_factor",
    "pin_memory": "pin_memory",
    "persistent_workers": "persistent_workers",
}


def loader_facts(loader: Any) -> LoaderFacts:  # noqa: ANN401
    """Facts about something shaped like torch's ``DataLoader``; of anything else, none.

    Only attributes and the length are looked at: nothing is iterated, no
    worker is started. Of several loaders, in a list or by name, it is the first.

    >>> loader_facts([1, 2, 3])
    {}
    """
    try:
        loader = _first(loader)
        if not hasattr(loader, "num_workers"):
            return {}
        facts: LoaderFacts = {"kind": "DataLoader", "adapter": type(loader).__name__}
        for name, attribute in _ATTRIBUTES.items():
            value = getattr(loader, attribute, None)
            if isinstance(value, int):
                facts[name] = value
        if "batch_size" not in facts:  # a sampler of whole batches knows it
            size = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
            facts.update({"batch_size": size} if isinstance(size, int) else {})
        with contextlib.suppress(TypeError, NotImplementedError):  # a stream has no length
            facts["batches"] = len(loader)
    except Exception:  # noqa: BLE001 (whatever a loader is, the training goes on)
        return {}
    return facts


def _first(loaders: Any) -> Any:  # noqa: ANN401
    if isinstance(loaders, dict):
        return _first(next(iter(loaders.values())))
    if isinstance(loaders, (list, tuple)):
        return _first(loaders[0])
    return loaders
