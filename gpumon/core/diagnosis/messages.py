"""Sentences on verdicts, reasons and advice. Others: ``troubles.py``, ``outlets/text``.

A field holds a figure, a name, a list of names, or a phrase of a table below. Code chooses a row
and fills its fields; it joins whole sentences, and never parts of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from gpumon.core.accounting.rank_wait import ITS_STEP, SUSPENDED
from gpumon.core.phase import IdleCause, InputWaitReason, TrainingPhase
from gpumon.core.verdict import LikelyCause, VerdictName


class Counted(NamedTuple):
    """A sentence on one thing, and on several."""

    one: str
    many: str

    def of(self, count: int, **fields: object) -> str:
        """The form for so many, filled in."""
        return (self.one if count == 1 else self.many).format(count=f"{count:,}", **fields)


class Tensed(NamedTuple):
    """A sentence on a job that goes on, and on one that is over."""

    now: str
    past: str

    def of(self, is_past: bool, **fields: object) -> str:
        """The form for a job that is over or not, filled in."""
        return (self.past if is_past else self.now).format(**fields)


# -- phrases ------------------------------------------------------------------------

WORD_OF_VERDICT: Final[Mapping[VerdictName, str]] = {
    **{name: name.value.replace("_", " ") for name in VerdictName},
    VerdictName.PARTIAL: "partly busy",
}
"""Each verdict, in the report and on the page."""

WORD_OF_CAUSE: Final[Mapping[IdleCause, str]] = {
    IdleCause.INPUT_WAIT: "waiting for input",
    IdleCause.CHECKPOINT: "during checkpoints",
    IdleCause.VALIDATION: "during validation",
    IdleCause.CALLBACKS: "in callbacks",
    IdleCause.HOST_TO_DEVICE: "copying to the GPU",
    IdleCause.WITHIN_STEP: "within the step",
    IdleCause.IMBALANCE: "waiting for a slower GPU",
    IdleCause.COMPILE: "while compiling",
    IdleCause.BETWEEN_EPOCHS: "between epochs",
    IdleCause.START_UP: "during start-up",
    IdleCause.UNKNOWN: "cause unknown",
    IdleCause.NOT_IN_USE: "not in use",
}
"""Each cause, as it reads after "idle"."""
WORD_OF_FIRST_WAIT: Final = "waiting for the first batch"
"""The part of ``INPUT_WAIT`` that a run pays once."""

WORD_OF_REASON: Final[Mapping[str, str]] = {
    InputWaitReason.CPU_BOUND: "preprocessing",
    InputWaitReason.GIL_BOUND: "the GIL",
    InputWaitReason.DISK_BOUND: "the disk",
    InputWaitReason.NETWORK_BOUND: "the network",
    InputWaitReason.MEMORY_PRESSURE: "too little memory",
    InputWaitReason.LATENCY_BOUND: "latency",
    InputWaitReason.UNKNOWN: "reasons unknown",
}
"""Each reason, as it reads after "The bottleneck is" and after "due to"."""

DOING: Final[Mapping[TrainingPhase, str]] = {
    TrainingPhase.START_UP: "starting up",
    TrainingPhase.COMPILE: "compiling",
    TrainingPhase.INPUT_WAIT: "waiting for input",
    TrainingPhase.HOST_TO_DEVICE: "copying to the GPU",
    TrainingPhase.TRAIN_STEP: "in a training step",
    TrainingPhase.DEVICE_SYNC: "waiting for the GPU",
    TrainingPhase.CALLBACKS: "in a callback",
    TrainingPhase.CHECKPOINT: "saving a checkpoint",
    TrainingPhase.VALIDATION: "in validation",
    TrainingPhase.PREDICT: "predicting",
    TrainingPhase.BETWEEN_EPOCHS: "between two epochs",
    TrainingPhase.OTHER: "in untagged code",
}
"""What a run does in each phase, after "it is"."""

LIKELY: Final[Mapping[LikelyCause, str]] = {
    LikelyCause.LATE_INPUT: "waits for input",
    LikelyCause.EVERY_N_STEPS: "regular checkpoints or evaluations",
    LikelyCause.OTHER_MACHINES: "waits for other machines",
    LikelyCause.REQUESTS: "requests to a server or a notebook",
}
"""What pauses can be."""

# -- advice: one for each cause ------------------------------------------------------

EVIDENCE: Final = "Idle, {cause}: {shares}."
SHARE: Final = "GPU {gpu} for {part} in use ({share})"
SHARE_OF_START: Final = "GPU {gpu} for {part} of start-up and use ({share})"
PAUSED: Final = "GPU {gpu} paused {times}, {median}longest {longest}."
HIDDEN_WAIT: Final = "Another {hidden} of waiting was hidden behind a busy GPU and cost nothing."
SAME_CHANGE: Final = "Make the same change as for {gpus}."
SAME_LOCK: Final = "The change above that ends the wait for the GIL ends this, too."

CHECKPOINT: Final = (
    "Save less often, save weights only, or save in the background: first to memory or a local "
    "disk, then copy from there."
)
VALIDATION: Final = (
    "Validate less often or on fewer batches (validation_freq, validation_steps), with a larger "
    "batch, or in a separate process on saved weights."
)
IMBALANCE: Final = (
    "Give the slower GPU a smaller share of each batch, in proportion to their speeds, or use "
    "GPUs of one kind in a job."
)
COMPILE: Final = (
    "Compile once: keep shapes fixed (drop or pad the last batch), and turn on the framework's "
    "compilation cache for the next run."
)
CALLBACKS: Final = (
    "Take work out of the callbacks: log every N batches, write in a background thread, and read "
    "no tensor in a batch hook, because each read makes the device wait."
)
SLOW_CALLBACKS: Final = "The slowest callbacks of {run}: {callbacks}."
BETWEEN_EPOCHS: Final = "Make epochs longer: repeat the data set, and set the steps of an epoch."
START_UP: Final = (
    "Start faster: load the data set lazily, keep a prepared copy on a local disk, and build the "
    "pipeline while the model is being built."
)
START_UP_COMPILING: Final = (
    "Most of it was compiling ({time}): turn on the framework's compilation cache for the next run."
)
COPY: Final = (
    "Copy the next batch while the current one is computed: prefetch to the device, with pinned "
    "memory, and send small types (uint8, float16) instead of float32."
)
ANY_WAYS: Final = (
    "compile the step (jit, torch.compile), run several steps per call or use CUDA graphs where "
    "the framework can"
)
WAYS_OF_FRAMEWORK: Final[Mapping[str, str]] = {
    "keras/tensorflow": (
        "compile the step (jit_compile=True), run several steps per call (steps_per_execution)"
    ),
    "keras/jax": "run several steps per call (steps_per_execution)",
    "keras/torch": "compile the model (torch.compile)",
    "lightning": "compile the model (torch.compile)",
    "huggingface": "compile the model (torch_compile=True)",
}
"""How a framework submits more work at a time."""
WITHIN_STEP: Final = (
    "The GPU is idle inside the step: use a larger batch, {ways}, and read the loss less often. A "
    "kernel profiler shows which call synchronises."
)
WITHIN_STEP_LARGER_BATCH: Final = (
    "The GPU is idle inside the step: use a larger batch, and read the loss less often. A kernel "
    "profiler shows which call synchronises."
)
OPEN_SPLIT_EVIDENCE: Final = (
    "GPU {gpu} works while its run does other things, so the cause of some idle time is open: "
    "{causes}."
)
OPEN_SPLIT: Final = (
    'In your own code, put `with phase("device_sync")` around what waits for the GPU '
    "(`loss.item()`, `float(loss)`, a synchronize): gpumon then knows when the GPU has finished."
)
_FIRST_BATCH_SOONER: Final = (
    "shrink the shuffle buffer, which is filled first; read the first files from a local copy "
    "(cold shards, a cold cache); and list or index the data set once, not at each start."
)
FIRST_BATCH: Final = f"Each run waits for its first batch: {_FIRST_BATCH_SOONER}"
AWAIT_FIRST_BATCH: Final = f"wait for it. If it is always late, {_FIRST_BATCH_SOONER}"

# -- advice: idle time without a cause -----------------------------------------------

NO_GPU_OF_RUN: Final = (
    "The run {run} tags its phases but is not bound to a GPU here: name the one it trains on with "
    "GPUMON_GPUS=0 or PhaseTagger(gpus=[0])."
)
OUTSIDE_RUNS: Final = (
    "Most of this time is outside the runs of this report: tag whatever else uses {gpus}."
)
TAG_WAIT_AND_STEP: Final = (
    "Tag what the loop does in this time: its wait for input with `for batch in timed(loader)`, "
    'and its step with `with phase("train_step")`.'
)
TAG_REST: Final = (
    "Tag what the run does in this time with `phase(...)`: none of its phases covers it."
)
REST_AT_ITS_ENDS: Final = (
    "Most of it is before and after training: in the script, or while the trainer shuts down its "
    "loader."
)
TAG_PHASES: Final = (
    "`gpumon why` shows the line of code that a GPU waits for, while the script runs. To prove the "
    "cause, start the script with `gpumon run`, or tag its phases: callbacks=[PhaseTagger()] in "
    'Keras, Lightning or a Hugging Face Trainer, timed(loader) and phase("train_step") in your own '
    "loop."
)
MOSTLY_IDLE: Final = (
    "For most of its time in use almost nothing ran: the process waits for something else, or "
    "submits little work at a time."
)
LEVEL: Final = "Utilisation alone cannot distinguish short waits from small kernels."
FEW_PAUSES: Final = (
    "A slow loader, checkpoints, evaluations and other machines all cause such pauses: check what "
    "the job does during them, or watch it for longer."
)
AFTER_PAUSES: Final[Mapping[LikelyCause, str]] = {
    LikelyCause.LATE_INPUT: (
        "Before you change the loader, check what the job does in these pauses."
    ),
    LikelyCause.OPEN: "Check what the job does in these pauses.",
    LikelyCause.EVERY_N_STEPS: (
        "If they are checkpoints or evaluations, write in the background or evaluate less often."
    ),
    LikelyCause.OTHER_MACHINES: (
        "If it waits for other machines, balance their work; if it saves or evaluates, write in "
        "the background or evaluate less often."
    ),
    LikelyCause.REQUESTS: (
        "If no requests arrive then, share the GPU with others, or stop what is not used."
    ),
}

# -- advice: GPUs without work -------------------------------------------------------

UNUSED: Final = Counted(
    "{gpus} was never in use in {observed}.", "{gpus} were never in use in {observed}."
)
HARDLY_USED: Final = Counted(
    "{gpus} was in use for {part} observed.", "{gpus} were in use for at most {part} observed."
)
IDLE: Final = Counted(
    "{gpus} was idle: schedule work or release it.",
    "{gpus} were idle: schedule work or release them.",
)
IDLE_BESIDE_RUNS: Final = Counted(
    "{gpus} was idle: release it if no run needs it.",
    "{gpus} were idle: release those that no run needs.",
)
RUNS_COMING: Final = Counted(
    "{runs} has used no GPU yet, but still may.", "{runs} have used no GPU yet, but still may."
)
STEPS_ON_CPU: Final = "{run} computes its steps on the CPU: {check}."
STEPS_WITHOUT_GPU: Final = (
    "{run} counts steps but hardly uses a GPU: tag what it does between its steps with "
    "`phase(...)`."
)
STEPS_ELSEWHERE: Final = (
    "{run} counts steps but hardly uses a GPU: it spends {share} of its time in {phase}. Shorten "
    "that first."
)
RUN_TOO_SHORT: Final = (
    "The run is over: let the next one work for more than {enough} on {gpus} (more steps or "
    "epochs), then ask again."
)
WATCH_LONGER: Final = (
    "A verdict needs {enough} in use: watch {gpus} for longer, or ask about a longer time."
)
RELEASE_IF_DONE: Final = Counted(
    "If no more work is coming, release it.", "If no more work is coming, release them."
)
OTHER_ROWS_UNKNOWN: Final = "What {gpus} did in the other rows is unknown."
HELD_EVIDENCE: Final = Counted(
    "A process has held {gpus} for more than {time}, and nothing ran there.",
    "Processes have held {gpus} for more than {time}, and nothing ran there.",
)
HELD_ASK: Final = "Ask {user} whether process {pid} is still needed."
HELD_FIND_OUT: Final = (
    "Find out whose process {pid} is (`ps -o user,args -p {pid}`), and whether it is still needed."
)
HELD_FREES_MEMORY: Final = "Ending it frees {memory} of {gpus}."
HELD_FREES: Final = "Ending it frees {gpus}."
HOLDS_MEMORY: Final = "{holder} holds {memory} of {gpus}, where nothing has run {since}."
HOLDS: Final = "{holder} holds {gpus}, where nothing has run {since}."
HELD_BY_OTHERS: Final = "Other processes are there, too."
HELD_AS_WELL: Final = Counted("{gpus} is held as well.", "{gpus} are held as well.")

# -- logs with too few samples -------------------------------------------------------

LOG_A_SECOND: Final = (
    "Log one row a second for ten minutes while it works: "
    "`timeout 600 nvidia-smi --query-gpu=timestamp,index,utilization.gpu --format=csv -l 1 > "
    "gpu.csv`, then `gpumon analyze gpu.csv`."
)
NO_UTILISATION: Final = (
    "The log has no utilisation of {gpus}: `gpumon doctor` on that machine shows whether its "
    "driver reports one. With MIG on, the driver reports none for the whole GPU."
)
NO_SAMPLES: Final = Counted(
    "{gpus} has no sample with a utilisation.", "{gpus} have no sample with a utilisation."
)
FEW_SAMPLES: Final = Counted(
    "{gpus} has {samples}: too few to show where the time went.",
    "{gpus} each have {samples}: too few to show where the time went.",
)
MORE_WITH_FEW_SAMPLES: Final = Counted(
    "{count} more GPU has too few samples.", "{count} more GPUs have too few samples."
)
SAMPLES_NEEDED: Final = (
    "a verdict needs at least {samples} samples, with a median of at most {time} between two."
)
SAMPLES_APART: Final = "Each sample may cover only the second before it: the rest is unknown."
ROWS_USED: Final = Counted(
    "Only {share} of the rows of {gpus} can be used.",
    "As little as {share} of the rows of {gpus} can be used.",
)

# -- low SM utilisation --------------------------------------------------------------

LOW_FILL: Final = (
    "GPU {gpu} was busy {busy} of its time in use, but on average only {share} of its "
    "multiprocessors had work."
)
LOW_POWER: Final = (
    "GPU {gpu} was busy {busy} of its time in use, but drew only {watts}, which suggests that "
    "few multiprocessors were active."
)
FILL_FIGURES: Final = "While it was more than {busy} busy ({time}): {figures}."
FILL_HINT: Final = (
    "While it was more than {busy} busy at full clock ({time}), it drew {watts} on average. This "
    "board does not report how many of its multiprocessors work, so this is a hint, not a proof."
)
CLOCKS_HELD: Final = "Its clocks were reduced for {share} of its busy time by {what} ({reasons})."
MORE_WORK_AT_A_TIME: Final = (
    "Give the GPU more work at a time: first a larger batch, then fewer and larger kernels: {way}."
)
MORE_WORK_BY_KERAS: Final = (
    "Give the GPU more work at a time: first a larger batch (`trainer-bench --find-batch` finds "
    "the largest that fits), then fewer and larger kernels: {way}."
)
MIXED_PRECISION: Final = "Mixed precision puts the tensor cores to work."
GAIN_IN_SAMPLES: Final = "The gain shows in samples per second, not in utilisation."

# -- runs that hang, wait or are stopped ---------------------------------------------

NO_STEP: Final = "{run} has counted no step for {time}: it is {doing}."
NO_STEP_IN_LOADER: Final = "{run} has counted no step for {time}: it is {doing}, in {loader}."
NO_FIRST_BATCH: Final = "{run} has waited for its first batch for {time}."
NO_FIRST_BATCH_IN_LOADER: Final = "{run} has waited for its first batch for {time}, in {loader}."
SLEEPS_IN_KERNEL: Final = "Its process sleeps in the kernel, in {function}."
FIND_THE_HANG: Final = (
    "`gpumon why {pid} --once` prints what each of its threads is doing: look for a lock, a read "
    "or a connection that does not return."
)
FIND_THE_HANG_ELSEWHERE: Final = "Do the same for pid {pids}."
LOOK_AT_RANK: Final = "If it waits for another rank, look at that rank."
END_THE_HANG: Final = "If nothing moves, end it and restart from the last checkpoint."
RESUME: Final = (
    "resume {what} with the counterpart of what stopped it: `fg`, `kill -CONT`, `docker unpause` "
    "or `scontrol resume`."
)

# -- waits for a late rank -----------------------------------------------------------

LATE_BECAUSE: Final[Mapping[str, str]] = {
    IdleCause.INPUT_WAIT.value: "whose input is late",
    IdleCause.HOST_TO_DEVICE.value: "which copies to its GPU meanwhile",
    IdleCause.CALLBACKS.value: "which runs callbacks meanwhile",
    IdleCause.CHECKPOINT.value: "which saves a checkpoint meanwhile",
    IdleCause.VALIDATION.value: "which validates meanwhile",
    IdleCause.BETWEEN_EPOCHS.value: "which takes longer between epochs",
    SUSPENDED: "which was suspended",
    ITS_STEP: "whose steps take longer",
}
LATE: Final = "which is late"
SPEED_UP_RANK: Final[Mapping[str, str]] = {
    IdleCause.INPUT_WAIT.value: "Speed up the input of {rank} first.",
    IdleCause.HOST_TO_DEVICE.value: "Hide the copies of {rank} first.",
    IdleCause.CALLBACKS.value: "Take work out of the callbacks of {rank} first.",
    IdleCause.CHECKPOINT.value: "Save checkpoints on {rank} less often, or in the background.",
    IdleCause.VALIDATION.value: "Validate on all ranks or less often, not on {rank} alone.",
    IdleCause.BETWEEN_EPOCHS.value: "Check what {rank} does between its epochs.",
    SUSPENDED: "Resume {rank} if it is still suspended.",
    ITS_STEP: "Give {rank} a smaller share of each batch, or find out why its steps take longer.",
}
CHECK_RANK: Final = "Check {rank} first."
WAITS_FOR_RANK: Final = Counted("{gpus} waits for it.", "{gpus} wait for it.")
MAY_WAIT_FOR_RANK: Final = "{gpus} may wait for it."
RANK_EVIDENCE: Final = "Reported as busy, but waiting for {rank}: {shares}."
RANK_EVIDENCE_OPEN: Final = "Reported as busy, and perhaps waiting for {rank}: {shares}."

# -- loaders, by their settings ------------------------------------------------------

FEW_WORKERS: Final = Counted(
    "The loader of {runs} has workers={workers}: raise it towards the number of CPU cores.",
    "The loaders of {runs} have workers={workers}: raise it towards the number of CPU cores.",
)
WORKERS_ARE_THREADS: Final = Counted(
    "The {workers} workers of {runs} are threads: if they run Python code, set "
    "use_multiprocessing=True.",
    "The {workers} workers of each of {runs} are threads: if they run Python code, set "
    "use_multiprocessing=True.",
)
NO_PREFETCH: Final = Counted(
    "The loader of {runs} prefetches nothing: let it work one or two batches ahead.",
    "The loaders of {runs} prefetch nothing: let them work one or two batches ahead.",
)
NOT_PINNED: Final = Counted(
    "{loader} has pin_memory=False: set pin_memory=True, and copy with non_blocking=True.",
    "The DataLoaders of {runs} have pin_memory=False: set pin_memory=True, and copy with "
    "non_blocking=True.",
)
EPOCH_HOOKS: Final = Counted(
    "{hooks} of the PyDataset of {runs} runs between epochs while the GPU waits: make it cheaper "
    "(shuffle indices, not data).",
    "{hooks} of the PyDatasets of {runs} runs between epochs while the GPU waits: make it cheaper "
    "(shuffle indices, not data).",
)
WORKERS_RESTART: Final = Counted(
    "The loader of {runs} restarts its workers for each epoch: persistent_workers=True keeps them.",
    "The loaders of {runs} restart their workers for each epoch: persistent_workers=True keeps "
    "them.",
)
IN_TF_DATA: Final = (
    "map with num_parallel_calls=tf.data.AUTOTUNE and end in .prefetch(tf.data.AUTOTUNE)"
)
IN_PROCESSES: Final = Counted(
    "load in {count} separate process (a DataLoader or a PyDataset with workers, or "
    "multiprocessing)",
    "load in {count} separate processes (a DataLoader or a PyDataset with workers, or "
    "multiprocessing)",
)

# -- input that is late, by why ------------------------------------------------------

PREFETCH: Final = (
    "Prepare the next batches while the GPU computes: prefetch, use more workers, or cache "
    "prepared data."
)
VALIDATION_INPUT: Final = (
    "The validation data arrives late ({time}) from {loaders}: prefetch in the validation pipeline "
    "too, give its loader workers, keep its prepared data in memory, or validate less often "
    "(validation_freq)."
)
EPOCH_INPUT: Final = "The first batch of each epoch comes late ({time} in all)."
KEEP_LOADER: Final = (
    "Keep the loader and its workers alive from one epoch to the next (persistent_workers=True in "
    "a DataLoader, one repeating iterator elsewhere), so that they fetch the first batches of the "
    "next epoch during the last steps of this one."
)
CPU_BOUND: Final = (
    "Preprocessing is the limit: use more workers, up to the number of cores; make decoding and "
    "augmentation cheaper; or cache their results."
)
CPU_BOUND_THREAD: Final = "Your training thread does its own loading, in {loader}: {how}."
CPU_BOUND_WORKERS: Final = "Too few workers make the batches of {loader}: {how}."
NO_MORE_CORES: Final = (
    "{count} workers would keep the GPU busy, but it may not use that many cores: make each batch "
    "cheaper, too."
)
SHORT_OF_CORES: Final = (
    "More workers will not help {loader}, which is short of cores: make a batch cheaper (decode "
    "smaller images, cache prepared data, augment on the GPU), or give it more cores."
)
CORES_TAKEN: Final = "Other processes use {cores} of those it may use."
CORES_THROTTLED: Final = "Its cgroup quota held it back {share} of the time: raise that first."
GIL_BOUND: Final = "The GIL is the limit: load in worker processes instead of threads."
GIL_BOUND_THREADS: Final = (
    "Threads make the batches of {loader}, and only one of them runs Python at a time: {how}, or "
    "do the work in code that releases the GIL (NumPy, Pillow, TensorFlow operations)."
)
GIL_BOUND_STEP: Final = (
    "The GPU is idle inside the step because other threads of the run hold the GIL. If they make "
    "the batches of {loader}, {how}; otherwise do their work in a separate process, or in code "
    "that releases the GIL."
)
DISK_BOUND: Final = (
    "The disk is the limit: keep the data set in memory, copy it to a local SSD, or pack many "
    "small files into a few large ones and read those in large pieces."
)
NETWORK_BOUND: Final = (
    "The loader waits for the network. One connection may be the limit: keep {count} times as many "
    "requests in flight, each on its own connection, with more threads or workers for {loader}. If "
    "the throughput does not rise, the link or the server is the limit: copy the data set to a "
    "local disk first, or store it compressed."
)
MEMORY_PRESSURE: Final = (
    "Memory is short: use fewer workers or a smaller shuffle buffer, so that the data set stays in "
    "the page cache."
)
LATENCY_BOUND: Final = (
    "Reads are small, and each waits for its answer: keep more of them in flight, with more "
    "workers and a deeper prefetch."
)
LATENCY_BOUND_THREAD: Final = (
    "Your training thread does its own loading, in {loader}, and waits for each read: {how}, or "
    "prefetch in a thread. Reads spend most of their time waiting, so the number of "
    "cores does not limit them."
)
LATENCY_BOUND_WORKERS: Final = (
    "Reads are small, and each waits for its answer. Keep {count} times as many in flight: give "
    "{loader} {count} times as many workers, and prefetch deeper. Reads spend most of their time "
    "waiting, so the number of cores does not limit them."
)
WORKERS_IN_A_LOCK: Final = (
    "The workers of {loader} spend {share} of their time asleep in a lock, or waiting for another "
    "thread. If they share a lock or a file, more of them will not help: hold it for less of each "
    "batch, or give each worker its own. `gpumon why PID --once` shows where a worker waits."
)

HELD_UP: Final = "The bottleneck is {seen}."
SEEN_AS_WELL: Final = "{seen}; also {reasons}"
SEEN_CPU_THREAD: Final = (
    "preprocessing: the training thread makes its own batches, on {given} of the {usable} it may "
    "use"
)
SEEN_CPU: Final = Counted(
    "preprocessing: {tasks} needs {wanted} and gets {given} of the {usable} it may use",
    "preprocessing: {tasks} need {wanted} and get {given} of the {usable} they may use",
)
SEEN_GIL: Final = (
    "the GIL: {count} threads of the process take turns holding it, on {cores} together"
)
SEEN_DISK: Final = "the disk: {figures}"
SEEN_DISK_ASLEEP: Final = "the disk: the loader sleeps until a device answers"
SEEN_NETWORK: Final = "the network: the loader sleeps until data arrives"
SEEN_NETWORK_RATE: Final = (
    "the network: the loader sleeps until data arrives, at {rate} MB per second"
)
SEEN_MEMORY: Final = "too little memory: {figures}"
SEEN_MEMORY_DROPPED: Final = "too little memory: pages that were dropped for lack of it are reread"
SEEN_LATENCY: Final = "latency: the loader sleeps between its reads, and hardly computes"

# -- pauses that nothing explains ----------------------------------------------------

BY_TAGS: Final = "as its tags prove"
BY_STACKS: Final = "as stack samples show"
BY_BOTH: Final = "as its tags and stack samples show"
IN_PAUSES: Final = "{shown} in {seen} of {sampled} ({count} in all)"
SEEN_PAUSES: Final = (
    "Stack samples show a wait for input in {seen} of {sampled}, of {count} pauses in all."
)
SEEN_AT: Final = (
    "In {seen} of {samples} taken while it was idle{besides}, its process was in {place}."
)
SEEN_FUNCTION: Final = "Its own code there is {function}."
NOT_WHILE_BUSY: Final = ", and in {seen} of {count} while it worked"
PROBABLY_INPUT: Final = (
    "By their shape, these pauses are probably waits for input (probability {percent}), "
    "otherwise {others}."
)
OTHERS_PROBABLY_INPUT: Final = (
    "The other pauses are probably waits for input, too (probability {percent}), "
    "otherwise {others}."
)
LESS_LIKE_INPUT: Final = (
    "These pauses look less like waits for input (probability {percent}) than like {others}."
)
SHAPE_IS_OPEN: Final = "Their pattern does not show whether they are {causes}."
LAST_PAUSES_OF_A_JOB: Final = (
    "The last ones began {times}: if the job saved, evaluated or waited for other machines then, "
    "that is probably the cause."
)
LAST_PAUSES_OF_REQUESTS: Final = (
    "The last ones began {times}: if it is a server or a notebook, check whether requests arrived "
    "then."
)
ELSE_INPUT: Final = "Otherwise, batches may be late."
ELSE_INPUT_OR_NO_WORK: Final = "Otherwise, batches may be late, or there was no work."
ELSE_NO_WORK: Final = "Otherwise, there may have been no work."
NO_LONGER_SUSPECTED: Final = (
    "Earlier, their shape pointed to waits for input: {time} in such pauses still counts as "
    "suspected."
)
LOST_IN_PAUSES: Final = Tensed(
    "GPU {gpu} is idle for {share} of its time in use, in {pauses}.",
    "GPU {gpu} was idle for {share} of its time in use, in {pauses}.",
)
LOST_IN_PAUSES_EVERY: Final = Tensed(
    "GPU {gpu} is idle for {share} of its time in use, in {pauses}, one every {cycle}.",
    "GPU {gpu} was idle for {share} of its time in use, in {pauses}, one every {cycle}.",
)
LOST_IN_PAUSES_ABOUT: Final = Tensed(
    "GPU {gpu} is idle for {share} of its time in use, in {pauses}, about one every {cycle}.",
    "GPU {gpu} was idle for {share} of its time in use, in {pauses}, about one every {cycle}.",
)

# -- GPUs of a job that wait for a slower one ----------------------------------------

BALANCED: Final = (
    "The GPUs of {runs} are balanced (busy in training steps: {shares}): leave the ratios as they "
    "are."
)
BALANCED_SINCE: Final = (
    "The GPUs of {runs} have been balanced since the ratios last changed (busy in training steps: "
    "{shares}): leave the ratios as they are."
)
WAITED_FOR: Final = "In {runs}, {waits} waited for {slow}."
RANKS_ELSEWHERE: Final = Counted(
    "{count} more rank of the job is not visible here, and may be slower still.",
    "{count} more ranks of the job are not visible here, and may be slower still.",
)
BUSY_IN_STEPS: Final = "Busy in training steps: {shares} (skew {skew})."
BUSY_IN_STEPS_SINCE: Final = (
    "Busy in training steps since the ratios last changed: {shares} (skew {skew})."
)
SLOWER: Final = (
    "{gpu} takes {times} times as long as {peer}, and its share, clocks, processes and model do "
    "not show why."
)
SLOWER_BECAUSE: Final = "{gpu} takes {times} times as long as {peer}: {causes}."
THOUGH_GIVEN_LESS: Final = "It gets only {share} of each batch, and {peer} gets {peer_share}."
EXPLAINS_A_PART: Final = "That explains only a part of it."
SLOW_CAUSE_TIMES: Final = "{cause} (a factor of {times})"
SLOW_BY_CLOCKS: Final = (
    "its clock ran at {clock}, held down {share} of its busy time by {what} ({reasons})"
)
SLOW_BY_CLOCKS_UNKNOWN: Final = "its clock ran at {clock}, and its board does not report why"
SLOW_BY_HELD_CLOCKS: Final = (
    "its clocks were reduced {share} of its busy time by {what} ({reasons})"
)
SLOW_BY_OTHERS: Final = "{processes} computed there {share} of the time"
SLOW_BY_OTHERS_PRESENT: Final = (
    "{processes} was there {share} of the time, and the driver does not report whether it computed"
)
SLOW_BY_SHARE: Final = "it gets {share} of each batch, and {peer} gets {peer_share}"
SLOW_BY_MODEL: Final = "it is another model ({name}, {peer}: {peer_name})"
FIX_FIRST: Final = "For {gpu}, first {ways}."
UNTIL_FIXED: Final = "Until that is fixed, different ratios would balance the GPUs."
END_OR_MOVE: Final = "end or move {processes}"
RAISE_POWER_LIMIT: Final = (
    "set its power limit to that of its peers (`nvidia-smi{which} -q -d POWER` shows the limits, "
    "`nvidia-smi{which} -pl WATTS` sets one)"
)
CHECK_CLOCKS: Final = (
    "check what its clocks are set to (`nvidia-smi{which} -q -d CLOCK,PERFORMANCE`)"
)
ONE_WITHOUT_WORK: Final = (
    "One of them did none of the work: give it a part of each batch, or leave it out."
)
SPLIT_UNKNOWN: Final = (
    "How batches are split is unknown; if evenly, {wanted} would balance them: {call}."
)
SPLIT_EVENLY: Final = "Batches are split evenly; split them {wanted}: {call}."
SPLIT: Final = (
    "Batches are split {now}; split them {wanted}: {call}, or let {keeper} find and keep the "
    "ratios during training."
)
NOTE_RANKS_ELSEWHERE: Final = (
    "Not all ranks of {runs} are visible here: some are on other machines, or not tagged. Where "
    "its GPUs wait for one of those, that reads as busy or as idle within the step: read the "
    "report of that machine, too."
)
NOTE_WAITS_INSIDE_NCCL: Final = (
    "Whether GPUs of {runs} wait for each other inside NCCL is not visible: such waits read as "
    "busy."
)

# -- the verdict on a GPU ------------------------------------------------------------

STARVED: Final = Tensed(
    "GPU {gpu} spends {share} of its time in use waiting for input.",
    "GPU {gpu} spent {share} of its time in use waiting for input.",
)
STALLED_MAINLY: Final = Tensed(
    "GPU {gpu} is idle {share} of its time in use, mainly {cause}.",
    "GPU {gpu} was idle {share} of its time in use, mainly {cause}.",
)
STALLED_IN_PART: Final = Tensed(
    "GPU {gpu} is idle {share} of its time in use, in part {cause}.",
    "GPU {gpu} was idle {share} of its time in use, in part {cause}.",
)
STALLED_OPEN: Final = Tensed(
    "GPU {gpu} is idle {share} of its time in use, {causes}: its tags leave open how much of each.",
    "GPU {gpu} was idle {share} of its time in use, {causes}: its tags leave open how much of "
    "each.",
)
IDLE_SHARE: Final = Tensed(
    "GPU {gpu} is idle {share} of its time in use.",
    "GPU {gpu} was idle {share} of its time in use.",
)
WAITING_FOR_RANK: Final = Tensed(
    "GPU {gpu} waits for {rank}, {share} of its time in use.",
    "GPU {gpu} waited for {rank}, {share} of its time in use.",
)
PERHAPS_WAITING_FOR_RANK: Final = Tensed(
    "GPU {gpu} may wait for {rank}, {share} of its time in use.",
    "GPU {gpu} may have waited for {rank}, {share} of its time in use.",
)
NOT_IN_LOG: Final = "The log does not show why."
NOT_PROVED: Final = "Nothing proves why."
TAGS_TOO_LITTLE: Final = "Tags explain too little of it."
CAUSE_UNKNOWN: Final = "The cause is unknown."
ONLY_HUNG: Final = "The run on GPU {gpu} hung for almost all of the GPU's time in use."
SHORT_USE: Final = Counted(
    "{gpus} was in use for less than {time}.", "{gpus} were in use for less than {time}."
)
SHORT_USE_AFTER_FIRST_BATCH: Final = Counted(
    "{gpus} was in use for less than {time} after the first batch.",
    "{gpus} were in use for less than {time} after the first batch.",
)
SHORT_WATCH: Final = Counted(
    "{gpus} was watched for less than {time}.", "{gpus} were watched for less than {time}."
)
NO_WORK: Final = "{gpus} ran no work."
LITTLE_WORK: Final = Counted(
    "{gpus} was busy {share} of the time, too little to count as in use.",
    "{gpus} were busy at most {share} of the time, too little to count as in use.",
)
LITTLE_LOST: Final = "{gpus} lost little time."
LITTLE_LOST_AFTER_FIRST_BATCH: Final = "{gpus} lost little time after the first batch."
BUSY_ALL_THE_TIME: Final = Counted(
    "{gpus} was busy almost all the time.", "{gpus} were busy almost all the time."
)
BUSY_ALL_ITS_USE: Final = Counted(
    "{gpus} was busy almost all its time in use.", "{gpus} were busy almost all their time in use."
)
IDLE_IN_FEW_PAUSES: Final = Counted(
    "{gpus} was idle for {share} of {when} in {pauses}, too few to judge.",
    "{gpus} were idle for up to {share} of {when}, in too few pauses to judge.",
)
IDLE_IN_NO_PATTERN: Final = "{gpus} was idle for {share} of {when}, in no pattern."
UNUSED_SHARE: Final = Counted(
    "It was not used for {share} of the log.", "They were not used for up to {share} of the log."
)
UNUSED_AT_END: Final = "It was not used for {share} of the log, including the last {time}."
IN_USABLE_ROWS: Final = "In the rows that can be used: {statement}"

OTHERS_LOSE: Final = Counted("{gpus} loses time too.", "{gpus} lose time too.")
OTHERS_LOST: Final = "{gpus} lost time too."
OTHERS_MAY_LOSE: Final = "{gpus} may lose time too."
OTHERS_MAY_HAVE_LOST: Final = "{gpus} may have lost time too."
OTHERS_HEALTHY: Final = Counted("{gpus} is healthy.", "{gpus} are healthy.")
OTHERS_WERE_HEALTHY: Final = Counted("{gpus} was healthy.", "{gpus} were healthy.")
OTHERS_UNUSED: Final = Counted("{gpus} was not in use.", "{gpus} were not in use.")
OTHERS_FEW_SAMPLES: Final = Counted("{gpus} has too few samples.", "{gpus} have too few samples.")
OTHERS_UNUSED_NOW: Final = Counted("{gpus} is not in use now.", "{gpus} are not in use now.")
OTHERS_IN_USE_NOW: Final = Counted("{gpus} is in use now.", "{gpus} are in use now.")
OTHERS_MIG: Final = Counted(
    "{gpus} has no verdict: MIG is on.", "{gpus} have no verdict: MIG is on."
)

STOPPED: Final = Counted("{runs} is stopped.", "{runs} are stopped.")
PROCESS_STOPPED: Final = "The process on GPU {gpu} is stopped."
RUN_STANDS_STILL: Final = "The run on GPU {gpu} makes no progress."
HUNG_UNTIL_ITS_END: Final = "The run on GPU {gpu} hung for {time} before it ended."

NO_GPU: Final = "no GPU was observed."
NO_GPU_ON_CPU: Final = Counted(
    "no GPU: the run {runs} computes on the CPU.", "no GPU: the runs {runs} compute on the CPU."
)
NO_GPU_USED: Final = Counted(
    "no GPU: the run {runs} used none.", "no GPU: the runs {runs} used none."
)
MIG_IN_LOG: Final = "unknown: MIG is on, and the log has no utilisation of {gpus}."
MIG_BELOW: Final = "MIG is on: its instances have the work."
MIG_EMPTY: Final = "unknown: MIG is on for {gpus}, without an instance."
NO_DATA: Final = Counted(
    "unknown: {gpus} does not report how busy it is.",
    "unknown: {gpus} do not report how busy they are.",
)
WHY_NO_DATA: Final = (
    "Only Hopper and newer boards report this for a MIG instance (through GPM), and only if it has "
    "its GPU instance to itself."
)
WHY_MIG_IN_LOG: Final = (
    "With MIG on, the driver reports no utilisation of the whole GPU, and the log has none of its "
    "instances."
)
WHY_MIG_EMPTY: Final = "No instance has been created, so nothing can run."
WHY_NO_GPU_READ: Final = "Since gpumon started, no GPU has been read."
WHY_NO_GPU_USED: Final = "No watched GPU was seen working for it."
WHY_NO_GPU: Final = "The source named none."

# -- why: what a verdict rests on ----------------------------------------------------

WHY_STARVED: Final = "{who} was idle for {part}, {waited} of it waiting for input, {shown}."
WHY_STARVED_RANGE: Final = (
    "{who} was idle for {part}, {waited} of it waiting for input; its tags prove {proved} of that."
)
WHY_STALLED: Final = "{who} was idle for {part}, {time} of it {cause}."
WHY_OPEN: Final = "{who} was idle for {part}, {causes}."
WHY_RANK: Final = (
    "{who} was idle for {part}. For {waited} more it read as busy while it waited for that rank, "
    "as its tags and the lengths of its steps prove."
)
WHY_PERHAPS_RANK: Final = (
    "{who} was idle for {part}. For {waited} more it read as busy and may have waited for that "
    "rank; nothing proves it."
)
WHY_PAUSES: Final = "{who} was idle for {part}, {paused} of it in {pauses}."
WHY_NO_PATTERN: Final = "{who} was idle for {part}, with no clear pattern of bursts and pauses."
WHY_LITTLE: Final = "{who} was idle for {part} ({share}), too little to matter."
WHY_FEW_PAUSES: Final = "{who} was idle for {part} ({share}), in fewer than {count} pauses."
WHY_IDLE: Final = "{who} was idle for {part}."
WHY_SHORT: Final = "{who} was in use for {part} observed."
OF_FIRST_BATCH: Final = "{time} of it was the wait for the first batch."
OF_A_HANG: Final = "{time} of it passed while the run hung."
OF_VALIDATION: Final = "{time} of that wait was in validation."
REST_LITTLE: Final = "The rest is too little to matter."
REST_FEW_PAUSES: Final = "The rest is in fewer than {count} pauses."
REST_NO_PATTERN: Final = "The rest has no pattern."
CLOCKWORK: Final = "They come {every}, like clockwork."
PROVED_SO_FAR: Final = "Proved by its tags: {time} {cause}."
GREATEST_CAUSE: Final = "The greatest part, {time}, was {cause}."
UNEXPLAINED: Final = (
    "Another {time} is untagged: put `phase(...)` around what the process does then."
)
NO_KNOWN_CAUSE: Final = "The cause of another {time} is unknown."
UNUSED_BEFORE: Final = "GPU {gpu} was not in use before that."
IDLE_BEFORE: Final = "Before that, GPU {gpu} was idle for {part} in use."
STEPS_BY_THEN: Final = "{run} had counted {steps} by then."
BEFORE_THAT: Final = "Before that, it was {verdict}."
SINCE_START: Final = "Since {time}, it has been idle for {lost} of its {in_use} in use."
SINCE_START_STARVED: Final = (
    "Since {time}, it has been idle for {lost} of its {in_use} in use, and has waited for input "
    "for {starved}."
)

# -- next: what to do where no advice fits -------------------------------------------

NAME_THE_GPU: Final = (
    "say which GPU it trains on, with GPUMON_GPUS=0 in its environment or PhaseTagger(gpus=[0]). "
    "If you have already named it, then gpumon does not watch that GPU, or the run hardly used it."
)
WATCH_INSTANCES: Final = (
    "watch its instances: `gpumon serve` on that machine reads those that the board reports, and "
    "`dcgmi dmon -e 1001` logs them for `gpumon analyze`."
)
CREATE_INSTANCE: Final = (
    "create an instance (`nvidia-smi mig -lgip` lists what fits), or turn MIG off."
)
RUN_DOCTOR: Final = "run `gpumon doctor`: it shows what can be read."
LOOK_AT_ITS_LOG: Final = (
    "look at the end of its log. If it hangs again, `gpumon why PID --once` prints what each "
    "of its threads is doing."
)
LOG_FOR_LONGER: Final = "log for longer, to see whether such pauses come again."
LOG_NEEDS_NO_CHANGE: Final = "nothing in this log calls for a change."
NO_CHANGE: Final = "nothing needs to change."
NO_CHANGE_YET: Final = "nothing needs to change yet: three pauses or more would show a pattern."
GAIN: Final = "At most {times} times as fast."
GAIN_OF_FIRST_BATCH: Final = (
    "At most {times} times as fast here, but this wait comes once per run: a longer run gains less."
)
GAIN_OR_MORE: Final = "{times} times as fast, or more."

# -- runs ----------------------------------------------------------------------------

RUN: Final = "Run {run} ({framework}, pid {pid}): {steps} in {time}."
RUN_WITH_PACE: Final = (
    "Run {run} ({framework}, pid {pid}): {steps} in {time}, median {step} per step."
)
RUN_ON_CPU: Final = Tensed(
    "It computes its steps on the CPU and uses no GPU.",
    "It computed its steps on the CPU and used no GPU.",
)
RUN_WITHOUT_GPU: Final = Tensed("It is bound to no GPU so far.", "It was bound to no GPU.")
RUN_REFUSED: Final = (
    "It names {gpus}, but its user has no known process there, so its tags are ignored for {gpus}."
)
RUN_SHARES: Final = "Its shares of each batch: {shares}."
RUN_SHARES_CHANGED: Final = Counted(
    "Its shares of each batch: {shares}, after {count} change.",
    "Its shares of each batch: {shares}, after {count} changes.",
)
RUN_SUSPENDED: Final = "It is suspended."
RUN_SUSPENDED_SINCE: Final = "It has been suspended since {time}."
RUN_HANGS: Final = "It hangs."
RUN_CALLBACKS: Final = "Its slowest callbacks: {callbacks}."
RUN_HELD_UP: Final = "{cause} for {time}, because of {seen} (seen in {share} of samples)."
JOB_BALANCE: Final = "Busy in training steps of {runs}: {shares} (skew {skew})."
JOB_BALANCE_AT: Final = (
    "Busy in training steps of {runs}: {shares} (skew {skew}, balanced at {ratios})."
)
