"""Facts about the data that Keras trains on, read without touching it: its kind and settings."""

from __future__ import annotations

from typing import Any, Final

from gpumon.core.ring_format.events import LoaderFacts
from trainer_hooks.ring.call_frames import caller_named
from trainer_hooks.taps import keras_private as private
from trainer_hooks.trainers.loader_facts import loader_facts, source_facts

_KIND_OF_ADAPTER: Final = {
    "ArrayDataAdapter": "arrays",
    "GeneratorDataAdapter": "generator",
    "GrainDatasetAdapter": "grain",
    "PyDatasetAdapter": "PyDataset",
    "TFDatasetAdapter": "tf.data",
    "TorchDataLoaderAdapter": "DataLoader",
}
_PREFETCHES: Final = frozenset({"PrefetchDataset", "_PrefetchDataset"})
_CACHES: Final = frozenset({"CacheDataset", "_CacheDataset"})
_MOST_STAGES: Final = 32


def feeder_of_caller() -> Any | None:  # noqa: ANN401
    """Return Keras' epoch iterator of the calling run, if found. It has the ``data_adapter``."""
    return caller_named("epoch_iterator", lambda found: hasattr(found, "data_adapter"))


def facts_of(feeder: Any | None) -> LoaderFacts:  # noqa: ANN401
    """Return facts about the data of an epoch iterator; empty for ``None``."""
    return {} if feeder is None else adapter_facts(feeder.data_adapter)


def adapter_facts(adapter: Any) -> LoaderFacts:  # noqa: ANN401
    """Return facts about the data of a ``fit``. Reads attributes only; never raises.

    Args:
        adapter: A data adapter of Keras 3, on any backend.

    Returns:
        ``adapter`` (its class), ``kind`` (``arrays, tf.data, PyDataset,
        generator, DataLoader, grain``, else the class), and where known
        ``batch_size`` (samples) and ``batches`` (per epoch). For a PyDataset also
        ``workers``, ``use_multiprocessing``, ``max_queue_size`` (batches) and
        ``epoch_hooks``, its own methods called between epochs; for it and for a
        generator the keys of ``source_facts``; for a DataLoader those of
        ``loader_facts``; for tf.data ``cache`` and ``parallel``, whether any
        stage does so, and ``prefetch`` where one does: TensorFlow may add that
        stage by itself, unseen.
    """
    name = type(adapter).__name__
    facts: LoaderFacts = {"adapter": name, "kind": _KIND_OF_ADAPTER.get(name, name)}
    try:
        if name == "TorchDataLoaderAdapter":
            facts = {**loader_facts(getattr(adapter, private.LOADER)), **facts}
        elif name == "TFDatasetAdapter":
            facts |= _stages(getattr(adapter, private.TF_DATASET))
        elif name == "GeneratorDataAdapter":
            facts |= source_facts(_peeked_into(adapter.generator))
        seen = {
            "batch_size": getattr(adapter, "batch_size", None),
            "batches": getattr(adapter, "num_batches", None),
        }
        dataset = getattr(adapter, "py_dataset", None)
        for attribute in ("workers", "use_multiprocessing", "max_queue_size"):
            seen[attribute] = getattr(dataset, attribute, None)
        facts |= {key: value for key, value in seen.items() if isinstance(value, int)}
        if dataset is not None:
            facts |= {**source_facts(dataset), **_epoch_hooks(type(dataset))}
    except Exception:  # noqa: BLE001 (another Keras may keep them elsewhere)
        return facts
    return facts


def _epoch_hooks(kind: type[Any]) -> LoaderFacts:
    """Return which methods a user's PyDataset has for the end and the beginning of an epoch."""
    own = []
    for name in ("on_epoch_end", "on_epoch_begin"):
        owner = next((base for base in kind.__mro__ if name in vars(base)), None)
        if owner is not None and owner.__name__ != "PyDataset":
            own.append(name)
    return {"epoch_hooks": " and ".join(own)} if own else {}


def _peeked_into(restored: Any) -> object:  # noqa: ANN401
    """Return the user's generator: Keras keeps a function that puts the first batches back."""
    cells = dict(zip(restored.__code__.co_freevars, restored.__closure__ or (), strict=True))
    kept: object = cells["generator"].cell_contents
    return kept


def _stages(dataset: Any) -> LoaderFacts:  # noqa: ANN401
    """Describe a tf.data pipeline by the class names of its stages."""
    stages: set[str] = set()
    for _ in range(_MOST_STAGES):
        if dataset is None:
            break
        stages.add(type(dataset).__name__)
        dataset = getattr(dataset, "_input_dataset", None)
    facts: LoaderFacts = {
        "cache": bool(stages & _CACHES),
        "parallel": any("Parallel" in stage for stage in stages),
    }
    return facts | {"prefetch": True} if stages & _PREFETCHES else facts
