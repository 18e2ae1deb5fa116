"""A training script that reads its records from a cold disk every time.

    python examples/slow_by_a_disk.py --spans /tmp/busy.jsonl                   # cold
    python examples/slow_by_a_disk.py --spans /tmp/busy.jsonl --keep-in-memory  # as advised

The simulated GPU takes 20 ms for a record of 16 MB. The page cache is dropped after each read so
that the disk stays cold, as with a data set that is larger than memory.
"""

import os

from trainer_hooks import phase, step, timed
from trainer_hooks.examples.example_run import ExampleRun, positive, run_example, spans_parser

STEP_S = 0.020
RECORDS, RECORD_BYTES = 8, 16_000_000


class Records:
    """Records of one file, read in turn; or kept in memory, and read once."""

    def __init__(self, path, count, *, keep_in_memory):
        self.path, self.count, self.keep_in_memory = path, count, keep_in_memory
        self.kept = [self.read(number) for number in range(RECORDS)] if keep_in_memory else []

    def __iter__(self):
        for number in range(self.count):
            at = number % RECORDS
            yield self.kept[at] if self.keep_in_memory else self.read(at)

    def read(self, number):
        """A record from the disk."""
        with self.path.open("rb", buffering=0) as file:
            where = number * RECORD_BYTES, RECORD_BYTES
            os.posix_fadvise(file.fileno(), *where, os.POSIX_FADV_DONTNEED)
            return os.pread(file.fileno(), RECORD_BYTES, where[0])


def train(run: ExampleRun) -> None:
    """Train on as many records as ``--steps`` says."""
    with phase("start_up"):
        path = run.folder / "records"
        with path.open("wb") as file:
            for _ in range(RECORDS):
                file.write(os.urandom(RECORD_BYTES))
            os.fsync(file.fileno())
        records = Records(path, run.args.steps, keep_in_memory=run.args.keep_in_memory)
    run.starts()
    for record in timed(records):
        with phase("train_step"):
            run.spans.sleep(STEP_S)
        step(samples=len(record))
    run.print_result(steps=run.args.steps)


if __name__ == "__main__":
    parser = spans_parser(__doc__)
    parser.add_argument("--steps", type=positive, default=600, help="records to train on")
    parser.add_argument("--keep-in-memory", action="store_true", help="read each record once")
    parser.set_defaults(gpu=0)
    run_example(parser, train)
