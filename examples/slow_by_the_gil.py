"""A training script fed by threads that work one at a time: they share the GIL.

    python examples/slow_by_the_gil.py --spans /tmp/busy.jsonl              # threads
    python examples/slow_by_the_gil.py --spans /tmp/busy.jsonl --processes  # as the report advises

Tokenising a text takes 40 ms of Python, and the simulated GPU needs 20 ms for it.
"""

import concurrent.futures
import time
from collections import deque

from trainer_hooks import phase, step, timed
from trainer_hooks.examples.example_run import ExampleRun, positive, run_example, spans_parser

STEP_S, TEXT_S = 0.020, 0.040
WORKERS = 3


class Texts:
    """Batches of words, cut out of texts some ahead of the step."""

    def __init__(self, count, *, processes):
        self.count, self.processes = count, processes

    def __iter__(self):
        kind = "ProcessPoolExecutor" if self.processes else "ThreadPoolExecutor"
        with getattr(concurrent.futures, kind)(2 if self.processes else WORKERS) as pool:
            ahead = deque(pool.submit(cut, number) for number in range(2 * WORKERS))
            for number in range(2 * WORKERS, 2 * WORKERS + self.count):
                ahead.append(pool.submit(cut, number))
                yield ahead.popleft().result()
            for late in ahead:
                late.cancel()


def cut(number):
    """The words of a text; takes the time of Python that a long one takes."""
    words, began_s = 0, time.thread_time()
    while time.thread_time() - began_s < TEXT_S:
        words += len(f"the text of number {number}".split())
    return words


def train(run: ExampleRun) -> None:
    """Train on as many texts as ``--steps`` says."""
    run.starts()
    words = 0
    for batch in timed(Texts(run.args.steps, processes=run.args.processes)):
        with phase("train_step"):
            run.spans.sleep(STEP_S)
        words += batch
        step()
    run.print_result(steps=run.args.steps, words=words)


if __name__ == "__main__":
    parser = spans_parser(__doc__)
    parser.add_argument("--steps", type=positive, default=600, help="texts to train on")
    parser.add_argument("--processes", action="store_true", help="cut them in processes")
    parser.set_defaults(gpu=0)
    run_example(parser, train)
