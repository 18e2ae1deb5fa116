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
    """Weak: a wait of the user's code for input, if threads or a process work on it."""
    THREAD_QUEUE = "queue of threads"
    """As a queue, but no process can fill it."""
    RESULT = "result"
    """As a queue, but only if a process works on it: a thread may be the one that trains."""
    FETCHING_STEP = "fetching step"
    """Strong: a step that fetches its batch in C++, if a generator of tf.data is running."""


class FrameRow(NamedTuple):
    """Calls that have one cause.

    Attributes:
        library: As PyPI names it; ``"python"``: the standard library.
        version: In which real stack samples showed it, most in ``tests/stacks``; ``None``: not
            run here, from its public source.
        path: Path inside ``site-packages`` or the standard library; ``*``: anything.
        functions: Names, separated by spaces; ``*``: anything. Python before 3.11 gives only the
            part after the last dot.
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
    FrameRow("keras", "3.15.1", "keras/src/trainers/epoch_iterator.py",
             "EpochIterator.__next__", _INPUT, "Keras' next batch"),
    FrameRow("keras", "3.15.1", "keras/src/trainers/data_adapters/*",
             "*", _INPUT, "Keras' next batch"),
    FrameRow("keras", "3.15.1", "keras/src/backend/tensorflow/trainer.py",
             "TensorFlowTrainer._make_function.<locals>.function "
             "TensorFlowTrainer.make_train_function.<locals>.function",
             _INPUT, "Keras' next batch", RowKind.FETCHING_STEP),
    FrameRow("grain", "0.2.18", "grain/_src/python/*", "*.__next__", _INPUT, "grain's next"),
    FrameRow("datasets", "5.2.0", "datasets/arrow_dataset.py",
             "Dataset.__iter__ Dataset.__getitem__ Dataset.__getitems__",
             _INPUT, "reading a Hugging Face dataset"),
    FrameRow("datasets", "5.2.0", "datasets/iterable_dataset.py",
             "*.__iter__", _INPUT, "reading a Hugging Face dataset"),
    FrameRow("webdataset", "1.0.2", "webdataset/*",
             "DataPipeline.iterator", _INPUT, "reading a WebDataset"),
    FrameRow("lightning", "2.6.6", "*lightning*/loops/fetchers.py",
             "*DataFetcher.__next__", _INPUT, "Lightning's next batch"),
    FrameRow("nvidia-dali", None, "nvidia/dali/plugin/*",
             "*Iterator.__next__ _DaliBaseIterator._get_outputs", _INPUT, "DALI's next"),
    FrameRow("merlin-dataloader", None, "merlin/*/loader_base.py",
             "LoaderBase.__next__", _INPUT, "NVTabular's next"),
    FrameRow("python", "3.11", "queue.py",
             "Queue.get", _INPUT, "Queue.get", RowKind.THREAD_QUEUE),
    FrameRow("python", "3.11", "multiprocessing/queues.py",
             "Queue.get SimpleQueue.get", _INPUT, "multiprocessing.Queue.get", _QUEUE),
    FrameRow("python", "3.11", "multiprocessing/pool.py",
             "IMapIterator.next", _INPUT, "the next result of a pool", _QUEUE),
    FrameRow("python", "3.11", "concurrent/futures/_base.py",
             "Executor.map.<locals>.result_iterator", _INPUT, "the next result of a pool", _QUEUE),
    FrameRow("python", "3.11", "concurrent/futures/_base.py",
             "Future.result", _INPUT, "Future.result", _RESULT),
    FrameRow("python", "3.11", "multiprocessing/pool.py",
             "ApplyResult.get", _INPUT, "a result of a pool", _RESULT),
    FrameRow("python", "3.11", "multiprocessing/connection.py",
             "_ConnectionBase.recv _ConnectionBase.recv_bytes", _INPUT, "Connection.recv", _RESULT),

    # The step
    FrameRow("torch", "2.13.0", "torch/_tensor.py",
             "Tensor.backward", _STEP, "Tensor.backward", _WEAK),
    FrameRow("torch", "2.13.0", "torch/optim/optimizer.py",
             "Optimizer.profile_hook_step.<locals>.wrapper", _STEP, "the optimizer's step", _WEAK),
    FrameRow("torch", None, "torch/cuda/*", "synchronize *.synchronize",
             _STEP, "torch.cuda.synchronize", _WEAK),
    FrameRow("keras", "3.15.1", "keras/src/backend/*/trainer.py",
             "*Trainer.train_step", _STEP, "Keras' train_step", _WEAK),
    FrameRow("transformers", "5.24.0", "transformers/trainer.py",
             "Trainer.training_step", _STEP, "the Trainer's step", _WEAK),
    FrameRow("jax", "0.10.2", "jax/_src/api.py",
             "block_until_ready", _STEP, "block_until_ready", _WEAK),
    FrameRow("jax", "0.10.2", "jax/_src/array.py",
             "ArrayImpl._value", _STEP, "reading an array", _WEAK),
    FrameRow("jax", "0.10.2", "jax/_src/numpy/array_methods.py",
             "_item", _STEP, "Array.item", _WEAK),
    FrameRow("jax", "0.10.2", "jax/_src/api.py", "device_put", _COPY, "device_put", _WEAK),
    FrameRow("accelerate", None, "accelerate/utils/operations.py",
             "send_to_device", _COPY, "send_to_device", _WEAK),
    FrameRow("tensorflow", None, "tensorflow/python/framework/ops.py",
             "_EagerTensorBase.numpy _EagerTensorBase.__float__ _EagerTensorBase.__array__",
             _STEP, "Tensor.numpy", _WEAK),

    # Waiting for other processes of the job
    FrameRow("torch", "2.13.0", "torch/distributed/distributed_c10d.py",
             "barrier monitored_barrier all_reduce all_reduce_coalesced all_gather "
             "all_gather_coalesced all_gather_object all_gather_single all_gather_into_tensor "
             "all_to_all all_to_all_single broadcast broadcast_object_list gather gather_object "
             "recv recv_object_list reduce reduce_scatter reduce_scatter_single "
             "reduce_scatter_tensor scatter scatter_object_list send send_object_list",
             _STEP, "a collective of torch.distributed", _COLLECTIVE),
    FrameRow("jax", None, "jax/experimental/multihost_utils.py",
             "broadcast_one_to_all process_allgather sync_global_devices",
             _STEP, "a collective of JAX", _COLLECTIVE),
    FrameRow("tensorflow", None, "tensorflow/python/ops/collective_ops.py",
             "all_reduce all_reduce_v2 all_gather all_gather_v2 broadcast_send broadcast_send_v2 "
             "broadcast_recv broadcast_recv_v2", _STEP, "a collective of TensorFlow", _COLLECTIVE),
    FrameRow("horovod", None, "horovod/*/mpi_ops.py",
             "synchronize allreduce grouped_allreduce allgather broadcast alltoall join barrier",
             _STEP, "a collective of Horovod", _COLLECTIVE),

    # Saving the model
    FrameRow("torch", "2.13.0", "torch/serialization.py", "save", _SAVE, "torch.save"),
    FrameRow("torch", None, "torch/distributed/checkpoint/state_dict_saver.py",
             "save async_save", _SAVE, "torch.distributed.checkpoint"),
    FrameRow("safetensors", "0.8.0", "safetensors/*.py",
             "save save_file save_model", _SAVE, "safetensors' save_file"),
    FrameRow("keras", "3.15.1", "keras/src/saving/saving_api.py",
             "save_model save_weights", _SAVE, "Keras' save_model"),
    FrameRow("tensorflow", "2.21.0", "tensorflow/python/checkpoint/checkpoint.py",
             "Checkpoint.save Checkpoint.write", _SAVE, "tf.train.Checkpoint.save"),
    FrameRow("tensorflow", None, "tensorflow/python/saved_model/save.py",
             "save save_and_return_nodes", _SAVE, "tf.saved_model.save"),
    FrameRow("orbax-checkpoint", "0.12.8", "orbax/checkpoint/*",
             "*.save *.wait_until_finished", _SAVE, "an Orbax checkpoint"),
    FrameRow("h5py", "3.16.0", "h5py/_hl/*",
             "Dataset.__setitem__ Dataset.write_direct Dataset.flush Group.create_dataset "
             "Group.__setitem__ File.flush File.close", _SAVE, "writing with h5py"),
    FrameRow("lightning", "2.6.6", "*lightning*/trainer/trainer.py",
             "Trainer.save_checkpoint", _SAVE, "Lightning's save_checkpoint"),
    FrameRow("transformers", "5.24.0", "transformers/trainer.py",
             "Trainer._save_checkpoint Trainer.save_model", _SAVE, "the Trainer's checkpoint"),
    FrameRow("deepspeed", None, "deepspeed/runtime/engine.py",
             "DeepSpeedEngine.save_checkpoint", _SAVE, "DeepSpeed's save_checkpoint"),

    # Validation
    FrameRow("keras", "3.15.1", "keras/src/backend/*/trainer.py",
             "*Trainer.evaluate", _VALIDATION, "evaluate"),
    FrameRow("keras", "3.15.1", "keras/src/backend/*/trainer.py",
             "*Trainer.predict", _VALIDATION, "predict"),
    FrameRow("lightning", "2.6.6", "*lightning*/loops/evaluation_loop.py",
             "_EvaluationLoop.run", _VALIDATION, "Lightning's validation"),
    FrameRow("transformers", "5.24.0", "transformers/trainer.py",
             "Trainer.evaluate Trainer.predict", _VALIDATION, "the Trainer's evaluate"),

    # Callbacks and logs
    FrameRow("keras", "3.15.1", "keras/src/callbacks/callback_list.py",
             "*", _CALLBACKS, "Keras' callbacks"),
    FrameRow("lightning", "2.6.6", "*lightning*/trainer/call.py",
             "_call_callback_hooks", _CALLBACKS, "Lightning's callbacks"),
    FrameRow("transformers", "5.24.0", "transformers/trainer_callback.py",
             "CallbackHandler.call_event", _CALLBACKS, "the Trainer's callbacks"),
    FrameRow("tensorboard", None, "torch/utils/tensorboard/writer.py",
             "*", _CALLBACKS, "TensorBoard's writer"),
    FrameRow("tensorboard", "2.21.0", "tensorboard/summary/writer/event_file_writer.py",
             "EventFileWriter.*", _CALLBACKS, "TensorBoard's writer"),
    FrameRow("tensorflow", None, "tensorflow/python/ops/summary_ops_v2.py",
             "*.flush flush", _CALLBACKS, "TensorBoard's writer"),
    FrameRow("wandb", None, "wandb/sdk/wandb_run.py",
             "Run.log Run.finish Run.log_artifact", _CALLBACKS, "W&B's log"),
    FrameRow("mlflow", None, "mlflow/tracking/fluent.py",
             "log_*", _CALLBACKS, "MLflow's log"),

    # Compiling. What runs compiled code is in torch/_inductor, too, so only the compilers are here.
    FrameRow("torch", "2.13.0", "torch/_dynamo/convert_frame.py",
             "*", _COMPILE, "torch.compile"),
    FrameRow("torch", "2.13.0", "torch/_inductor/compile_fx.py",
             "compile_fx* _compile_fx* fx_codegen_and_compile", _COMPILE, "torch.compile"),
    FrameRow("jax", "0.10.2", "jax/_src/compiler.py",
             "compile_or_get_cached backend_compile*", _COMPILE, "XLA's compiler"),
    FrameRow("jax", "0.10.2", "jax/_src/interpreters/partial_eval.py",
             "trace_to_jaxpr*", _COMPILE, "JAX's tracing"),
    FrameRow("jax", "0.10.2", "jax/_src/interpreters/mlir.py",
             "lower_jaxpr_to_module", _COMPILE, "JAX's lowering"),
    FrameRow("tensorflow", "2.21.0",
             "tensorflow/python/eager/polymorphic_function/tracing_compilation.py",
             "_create_concrete_function", _COMPILE, "tracing of a tf.function"),
)
# fmt: on

_PACKAGES: Final = re.compile(r".*/(?:site|dist)-packages/")
_STANDARD_LIBRARY: Final = re.compile(r".*/lib(?:64)?/python3(?:\.\d+t?|\d+\.zip)/")
_OURS: Final = tuple(
    f"{Path(__file__).parents[3]}/{package}/" for package in ("gpumon", "trainer_hooks")
)
_TYPED_IN: Final = ("<string>", "<stdin>", "<ipython-input-", "<python-input-")
_GENERATED: Final = ("/torchinductor_", "/__autograph_generated_file")
_GAMES: Final = (
    "gym/", "gymnasium/", "pettingzoo/", "dm_env/", "dm_control/", "ale_py/", "mujoco/",
    "stable_baselines3/", "ray/rllib/",
)  # fmt: skip
_PLAYING: Final = frozenset({
    "actor", "actors", "env", "envs", "environment", "episode", "episodes", "play", "player",
    "rollout", "rollouts", "simulate", "simulator", "trajectory", "trajectories",
})  # fmt: skip
"""ours: names that say that a worker plays."""
_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
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
    for name in names.split():
        if "." not in function:
            name = name.rsplit(".", 1)[-1]
        if fnmatchcase(function, name):
            return True
    return False


def library_path(path: str) -> str | None:
    """The path inside ``site-packages``, or inside the standard library; ``None``: of neither."""
    for folder in (_PACKAGES, _STANDARD_LIBRARY):
        if match := folder.match(path):
            return path[match.end() :]
    return None


def is_standard_library(frame: StackFrame) -> bool:
    """Whether a call is of Python's own library."""
    path = frame.path
    return path.startswith("<frozen ") or (
        _PACKAGES.match(path) is None and _STANDARD_LIBRARY.match(path) is not None
    )


def is_user_code(frame: StackFrame) -> bool:
    """Whether a call is of the user's own code: of no library, and not generated."""
    path = frame.path
    if path.startswith("<"):
        is_dunder = frame.function.rsplit(".", 1)[-1].startswith("__")
        return path.startswith(_TYPED_IN) and not is_dunder  # <string>: a dataclass' __init__
    is_library = library_path(path) is not None or path.startswith(_OURS)
    return bool(path) and not is_library and not any(part in path for part in _GENERATED)


def is_playing(frame: StackFrame) -> bool:
    """Whether a call plays or simulates, as the actors of reinforcement learning do.

    What they play is what the GPU waits for, but no data loader can be late with it.

    >>> is_playing(StackFrame("VectorEnv.step", "/home/ann/games.py"))
    True
    >>> is_playing(StackFrame("decode", "/home/ann/player.py"))
    True
    >>> is_playing(StackFrame("display", "/home/ann/dataset.py"))
    False
    """
    inside = library_path(frame.path)
    if inside is not None:
        return inside.startswith(_GAMES)
    names = f"{frame.function} {frame.path.rpartition('/')[2]}"
    return not _PLAYING.isdisjoint(word.lower() for word in _WORDS.findall(names))
