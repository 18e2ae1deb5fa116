"""The table of library calls that say why a process waits.

What C code does shows only as the Python line that called it: ``.item()`` and decoding in C have
no frame, and so no row.
"""

from __future__ import annotations

import re
from enum import Enum
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.core.phase import IdleCause
from gpumon.core.stacks.stack import StackFrame


class RowKind(Enum):
    """How a row counts beside other rows in the same stack."""

    STRONG = "strong"
    """The innermost of these decides; within a wait for input, the wait."""
    WEAK = "weak"
    """Decides where no strong row is in the stack."""
    COLLECTIVE = "collective"
    """Weak, and waits for other processes of the job."""
    QUEUE = "queue"
    """A wait for another thread or process: for input only if one of them works on it."""
    RESULT = "result"
    """As a queue, but a thread may as well be the one that trains: only processes count."""


class FrameRow(NamedTuple):
    """Calls that have one cause.

    Attributes:
        library: As PyPI names it; ``"python"``: the standard library.
        version: In which a test saw it; ``None``: not run here, from its public source.
        path: Path inside ``site-packages`` or the standard library; ``*``: anything.
        functions: Names, separated by spaces. Python before 3.11 gives only the part after the
            last dot.
        cause: Why the process waits there.
        what: A short noun phrase for a person.
    """

    library: str
    version: str | None
    path: str
    functions: str
    cause: IdleCause
    what: str
    kind: RowKind = RowKind.STRONG

    @property
    def is_strong(self) -> bool:
        return self.kind is RowKind.STRONG


_INPUT: Final = IdleCause.INPUT_WAIT
_COPY: Final = IdleCause.HOST_TO_DEVICE
_STEP: Final = IdleCause.WITHIN_STEP
_SAVE: Final = IdleCause.CHECKPOINT
_CALLBACKS: Final = IdleCause.CALLBACKS
_VALIDATION: Final = IdleCause.VALIDATION
_COMPILE: Final = IdleCause.COMPILE
_WEAK: Final = RowKind.WEAK
_COLLECTIVE: Final = RowKind.COLLECTIVE
_QUEUE: Final = RowKind.QUEUE
_RESULT: Final = RowKind.RESULT

# fmt: off
ROWS: Final = (
    # The next batch
    FrameRow("torch", "2.13.0", "torch/utils/data/dataloader.py",
             "_BaseDataLoaderIter.__next__ DataLoader.__iter__", _INPUT, "DataLoader.__next__"),
    FrameRow("tensorflow", "2.21.0", "tensorflow/python/data/ops/iterator_ops.py",
             "OwnedIterator.__next__ OwnedIterator.get_next", _INPUT, "tf.data's next"),
    FrameRow("keras", "3.15.1", "keras/src/trainers/data_adapters/*",
             "*", _INPUT, "Keras' data adapter"),
    FrameRow("python", "3.11", "queue.py", "Queue.get", _INPUT, "Queue.get", _QUEUE),
    FrameRow("python", "3.11", "multiprocessing/queues.py",
             "Queue.get SimpleQueue.get", _INPUT, "multiprocessing's Queue.get", _QUEUE),
    FrameRow("python", "3.11", "multiprocessing/pool.py",
             "IMapIterator.next", _INPUT, "the next result of a pool", _QUEUE),
    FrameRow("python", "3.11", "concurrent/futures/_base.py",
             "Executor.map.<locals>.result_iterator", _INPUT, "the next result of a pool", _QUEUE),
    FrameRow("python", "3.11", "concurrent/futures/_base.py",
             "Future.result", _INPUT, "Future.result", _RESULT),
    FrameRow("python", "3.11", "multiprocessing/pool.py",
             "ApplyResult.get", _INPUT, "a result of a pool", _RESULT),

    # The step
    FrameRow("torch", "2.13.0", "torch/cuda/__init__.py",
             "synchronize", _STEP, "torch.cuda.synchronize", _WEAK),
    FrameRow("torch", "2.13.0", "torch/_tensor.py",
             "Tensor.backward", _STEP, "Tensor.backward", _WEAK),
    FrameRow("torch", "2.13.0", "torch/optim/*", "*", _STEP, "the optimizer's step", _WEAK),
    FrameRow("torch", "2.13.0", "torch/distributed/distributed_c10d.py",
             "barrier monitored_barrier all_reduce all_gather all_gather_object "
             "all_gather_into_tensor broadcast broadcast_object_list reduce reduce_scatter "
             "reduce_scatter_tensor gather gather_object scatter all_to_all all_to_all_single "
             "recv send", _STEP, "a collective of torch.distributed", _COLLECTIVE),
    FrameRow("jax", "0.10.2", "jax/_src/array.py",
             "ArrayImpl.block_until_ready ArrayImpl._value ArrayImpl.__array__",
             _STEP, "block_until_ready", _WEAK),
    FrameRow("jax", "0.10.2", "jax/_src/api.py",
             "block_until_ready", _STEP, "block_until_ready", _WEAK),

    # Saving the model
    FrameRow("torch", "2.13.0", "torch/serialization.py", "save", _SAVE, "torch.save"),
    FrameRow("keras", "3.15.1", "keras/src/saving/saving_api.py",
             "save_model save_weights", _SAVE, "Keras' save_model"),

    # Validation and callbacks
    FrameRow("keras", "3.15.1", "keras/src/backend/*/trainer.py",
             "TorchTrainer.evaluate JAXTrainer.evaluate TensorFlowTrainer.evaluate",
             _VALIDATION, "evaluate"),
    FrameRow("keras", "3.15.1", "keras/src/callbacks/callback_list.py",
             "*", _CALLBACKS, "Keras' callbacks"),

    # Compiling
    FrameRow("torch", "2.13.0", "torch/_dynamo/convert_frame.py", "*", _COMPILE, "torch.compile"),
    FrameRow("torch", "2.13.0", "torch/_inductor/*", "*", _COMPILE, "torch.compile"),
    FrameRow("jax", "0.10.2", "jax/_src/compiler.py", "*", _COMPILE, "compiling by XLA"),
    FrameRow("tensorflow", "2.21.0",
             "tensorflow/python/eager/polymorphic_function/tracing_compilation.py",
             "_maybe_define_function _create_concrete_function", _COMPILE,
             "tracing of a tf.function"),
)
# fmt: on

_PACKAGES: Final = re.compile(r".*/(?:site|dist)-packages/")
_STANDARD_LIBRARY: Final = re.compile(r".*/lib(?:64)?/python3(?:\.\d+t?|\d+\.zip)/")
_OURS: Final = tuple(
    f"{Path(__file__).parents[3]}/{package}/" for package in ("gpumon", "trainer_hooks")
)
_TYPED_IN: Final = ("<string>", "<stdin>", "<ipython-input-", "<python-input-")
_GENERATED: Final = ("/torchinductor_", "/__autograph_generated_file")
_CACHED_CALLS: Final = 8192
"""ours: a process of 100 threads shows a few thousand different calls."""


def row_of(frame: StackFrame) -> FrameRow | None:
    """The row that knows a call, or ``None``."""
    return _row_of(frame.function, frame.path)


@lru_cache(_CACHED_CALLS)
def _row_of(function: str, path: str) -> FrameRow | None:
    inside = library_path(path)
    if inside is None:
        return None
    for row in ROWS:
        if fnmatchcase(inside, row.path) and _is_named(function, row.functions):
            return row
    return None


def _is_named(function: str, names: str) -> bool:
    if names == "*":
        return True
    if "." not in function:
        return any(name.rsplit(".", 1)[-1] == function for name in names.split())
    return function in names.split()


def library_path(path: str) -> str | None:
    """The path inside ``site-packages``, or inside the standard library; ``None``: of neither."""
    for folder in (_PACKAGES, _STANDARD_LIBRARY):
        if match := folder.match(path):
            return path[match.end() :]
    return None


def is_user_code(frame: StackFrame) -> bool:
    """Whether a call is of the user's own code: of no library, and not generated."""
    path = frame.path
    if path.startswith("<"):
        is_dunder = frame.function.rsplit(".", 1)[-1].startswith("__")
        return path.startswith(_TYPED_IN) and not is_dunder  # <string>: a dataclass' __init__
    is_library = library_path(path) is not None or path.startswith(_OURS)
    return bool(path) and not is_library and not any(part in path for part in _GENERATED)
