from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.phase import IdleCause
from gpumon.core.stacks.place import STOPPED, Place, WorkerDoing, place_of, worker_doing
from gpumon.core.stacks.stack import ProcessStack, StackFrame, StackSample, ThreadStack

PACKAGES = "/env/lib/python3.11/site-packages"
LIBRARY = "/usr/lib/python3.11"
TRAIN = StackFrame("<module>", "/home/me/train.py", 41)
RESIZE = StackFrame("resize", "/home/me/dataset.py", 88)
NEXT = StackFrame("_BaseDataLoaderIter.__next__", f"{PACKAGES}/torch/utils/data/dataloader.py", 725)
FETCH = StackFrame("_MapDatasetFetcher.fetch", f"{PACKAGES}/torch/utils/data/_utils/fetch.py", 54)
WORKER = StackFrame("_worker_loop", f"{PACKAGES}/torch/utils/data/_utils/worker.py", 374)
GET = StackFrame("Queue.get", f"{LIBRARY}/multiprocessing/queues.py", 113)
THREAD_GET = StackFrame("Queue.get", f"{LIBRARY}/queue.py", 171)
SAVE = StackFrame("save", f"{PACKAGES}/torch/serialization.py", 900)
EVALUATE = StackFrame("TorchTrainer.evaluate", f"{PACKAGES}/keras/src/backend/torch/trainer.py", 5)
CALLBACK = StackFrame(
    "CallbackList.on_epoch_end", f"{PACKAGES}/keras/src/callbacks/callback_list.py", 19
)


def process(*stacks: tuple[StackFrame, ...], pid: int = 7) -> ProcessStack:
    threads = tuple(ThreadStack(pid + number, frames) for number, frames in enumerate(stacks))
    return ProcessStack(pid, None, "python train.py", threads)


def sample(*processes: ProcessStack) -> StackSample:
    return StackSample(0, 1, processes[0].pid, processes)


class TestPlaceOf:
    def test_a_loader_is_a_wait_for_input_with_its_caller(self) -> None:
        place = place_of(sample(process((GET, NEXT, TRAIN))))

        assert place == Place(
            IdleCause.INPUT_WAIT, NEXT, TRAIN, (TRAIN,), "DataLoader.__next__", None
        )

    def test_names_the_users_code_within_the_loader(self) -> None:
        place = place_of(sample(process((RESIZE, FETCH, NEXT, TRAIN))))

        assert (place.inside, place.caller) == (RESIZE, TRAIN)

    def test_a_file_that_a_dataset_saves_is_input(self) -> None:
        assert place_of(sample(process((SAVE, RESIZE, NEXT, TRAIN)))).cause is IdleCause.INPUT_WAIT

    def test_input_within_validation_is_input(self) -> None:
        place = place_of(sample(process((NEXT, EVALUATE, TRAIN))))

        assert place.cause is IdleCause.INPUT_WAIT

    def test_a_checkpoint_within_a_callback_is_a_checkpoint(self) -> None:
        place = place_of(sample(process((SAVE, CALLBACK, TRAIN))))

        assert place.cause is IdleCause.CHECKPOINT

    def test_a_queue_without_anybody_who_fills_it_has_no_cause(self) -> None:
        place = place_of(sample(process((GET, TRAIN))))

        assert (place.cause, place.caller) == (None, TRAIN)

    def test_a_queue_that_a_process_fills_is_input(self) -> None:
        place = place_of(sample(process((GET, TRAIN)), process((RESIZE, TRAIN), pid=20)))

        assert (place.cause, place.inside) == (IdleCause.INPUT_WAIT, RESIZE)

    def test_code_without_a_row_has_no_cause_but_a_name(self) -> None:
        place = place_of(sample(process((RESIZE, TRAIN))))

        assert place == Place(caller=RESIZE, user_frames=(TRAIN, RESIZE))

    def test_a_thread_that_sleeps_is_not_what_the_main_thread_waits_for(self) -> None:
        asleep = ThreadStack(8, (StackFrame("report_health", "/home/me/train.py", 3),))
        asleep = asleep._replace(state="S", sleeps_in="hrtimer_nanosleep")
        main = process((THREAD_GET, TRAIN))

        place = place_of(sample(main._replace(threads=(*main.threads, asleep))))

        assert (place.cause, place.caller) == (None, TRAIN)

    @pytest.mark.parametrize(
        "play",
        [
            StackFrame("play_episode", "/home/me/train.py", 16),
            StackFrame("VectorEnv.step", "/home/me/games.py", 16),
            StackFrame("step", "/home/me/actor.py", 16),
            StackFrame("TimeLimit.step", f"{PACKAGES}/gymnasium/wrappers/common.py", 120),
        ],
    )
    def test_a_queue_that_actors_fill_has_no_cause(self, play: StackFrame) -> None:
        place = place_of(sample(process((GET, TRAIN)), process((play, RESIZE, TRAIN), pid=20)))

        assert (place.cause, place.caller) == (None, TRAIN)

    @pytest.mark.parametrize("name", ["read.<locals>.<listcomp>", "<dictcomp>"])
    def test_a_comprehension_belongs_to_its_function(self, name: str) -> None:
        read = StackFrame("read", "/home/me/train.py", 15)

        place = place_of(sample(process((StackFrame(name, "/home/me/train.py", 15), read, TRAIN))))

        assert place == Place(caller=read, user_frames=(TRAIN, read))

    def test_a_process_that_could_not_be_read_is_no_evidence(self) -> None:
        assert place_of(StackSample(0, 1, 7, (process(()),))) == Place()
        assert place_of(StackSample(0, 1, 7, (), "it ended")) == Place()

    @pytest.mark.parametrize("state", ["T", "t"])
    def test_a_stopped_process_waits_for_nothing(self, state: str) -> None:
        stopped = ThreadStack(7, (GET, NEXT, TRAIN), state=state)

        place = place_of(sample(ProcessStack(7, None, "python train.py", (stopped,))))

        assert place == Place(what=STOPPED)

    def test_frames_of_a_parent_that_forked_are_not_its_own(self) -> None:
        run = StackFrame("BaseProcess.run", f"{LIBRARY}/multiprocessing/process.py", 108)

        assert place_of(sample(process((RESIZE, run, NEXT, TRAIN)))).user_frames == (RESIZE,)

    def test_python_3_10_gives_no_class(self) -> None:
        old = NEXT._replace(function="__next__")

        assert place_of(sample(process((GET, old, TRAIN)))).what == "DataLoader.__next__"

    def test_a_barrier_is_within_the_step_and_a_collective(self) -> None:
        barrier = StackFrame("barrier", f"{PACKAGES}/torch/distributed/distributed_c10d.py", 5356)
        place = place_of(sample(process((barrier, TRAIN))))

        assert (place.cause, place.is_collective) == (IdleCause.WITHIN_STEP, True)

    def test_a_barrier_within_a_checkpoint_is_the_checkpoint(self) -> None:
        barrier = StackFrame("barrier", f"{PACKAGES}/torch/distributed/distributed_c10d.py", 5356)

        assert place_of(sample(process((barrier, SAVE, TRAIN)))).cause is IdleCause.CHECKPOINT

    def test_a_queue_that_a_library_waits_for_has_no_cause(self) -> None:
        session = StackFrame("_TrainSession.get_next", f"{PACKAGES}/ray/train/session.py", 9)
        threads = process((GET, session, TRAIN), (RESIZE, TRAIN), (RESIZE, TRAIN))

        assert place_of(sample(threads)).cause is None

    def test_a_loader_in_another_thread_is_no_evidence_while_the_main_thread_works(self) -> None:
        assert place_of(sample(process((RESIZE, TRAIN), (NEXT, TRAIN)))).cause is None

    def test_a_thread_that_trains_counts_while_the_main_thread_joins_it(self) -> None:
        join = StackFrame("Thread.join", f"{LIBRARY}/threading.py", 1119)
        place = place_of(sample(process((join, TRAIN), (NEXT, RESIZE))))

        assert (place.cause, place.caller) == (IdleCause.INPUT_WAIT, RESIZE)

    def test_a_checkpoint_without_the_users_code_is_not_what_an_idle_notebook_does(self) -> None:
        select = StackFrame("EpollSelector.select", f"{LIBRARY}/selectors.py", 468)
        kernel = StackFrame("<module>", f"{PACKAGES}/ipykernel_launcher.py", 18)

        assert place_of(sample(process((select, kernel), (SAVE,)))) == Place()

    def test_keras_on_tensorflow_waits_while_its_generator_runs(self) -> None:
        step = StackFrame(
            "TensorFlowTrainer._make_function.<locals>.function",
            f"{PACKAGES}/keras/src/backend/tensorflow/trainer.py",
        )
        generator = StackFrame(
            "generator_py_func", f"{PACKAGES}/tensorflow/python/data/ops/from_generator_op.py"
        )

        assert place_of(sample(process((step, TRAIN)))).cause is None
        place = place_of(sample(process((step, TRAIN), (RESIZE, generator))))
        assert (place.cause, place.inside) == (IdleCause.INPUT_WAIT, RESIZE)


class TestWorkerDoing:
    def test_waits_on_its_queue(self) -> None:
        assert worker_doing(process((GET, WORKER))).is_working is False

    def test_works_in_the_users_code(self) -> None:
        doing = worker_doing(process((RESIZE, FETCH, WORKER)))

        assert (doing.is_working, doing.user_call) == (True, RESIZE)

    def test_a_pool_worker_in_the_users_code_works(self) -> None:
        pool = StackFrame("worker", f"{LIBRARY}/multiprocessing/pool.py", 125)
        run = StackFrame("BaseProcess.run", f"{LIBRARY}/multiprocessing/process.py", 108)

        doing = worker_doing(process((RESIZE, pool, run, TRAIN)))

        assert (doing.is_working, doing.user_call) == (True, RESIZE)

    def test_a_resource_tracker_is_no_worker(self) -> None:
        main = StackFrame("main", f"{LIBRARY}/multiprocessing/resource_tracker.py", 227)
        start = StackFrame("<module>", "<string>", 1)

        assert worker_doing(process((main, start))) == WorkerDoing()


CALLS = st.lists(
    st.builds(
        StackFrame,
        st.sampled_from(["__next__", "get", "wait", "save", "train", "<module>", "<listcomp>", ""]),
        st.sampled_from(
            [
                "",
                "<string>",
                "/home/me/train.py",
                f"{LIBRARY}/threading.py",
                f"{LIBRARY}/multiprocessing/queues.py",
                f"{LIBRARY}/multiprocessing/process.py",
                f"{PACKAGES}/torch/utils/data/dataloader.py",
                f"{PACKAGES}/torch/utils/data/_utils/worker.py",
                f"{PACKAGES}/torch/serialization.py",
            ]
        ),
        st.one_of(st.none(), st.integers(1, 99)),
    ),
    max_size=6,
).map(tuple)
PROCESSES = st.lists(
    st.lists(
        st.builds(
            ThreadStack,
            st.one_of(st.none(), st.integers(7, 9)),
            CALLS,
            state=st.sampled_from([None, "R", "S", "T"]),
        ),
        max_size=3,
    ).map(lambda threads: ProcessStack(7, None, "python train.py", tuple(threads))),
    min_size=1,
    max_size=3,
)


@given(PROCESSES)
def test_any_stacks_have_a_place_and_its_calls_are_their_own(processes: list[ProcessStack]) -> None:
    place = place_of(StackSample(0, 1, 7, tuple(processes)))

    calls = {call for one in processes for thread in one.threads for call in thread.frames}
    shown = {place.frame, place.caller, place.inside, *place.user_frames} - {None}
    assert shown <= calls
    assert place.cause is None or place.frame is not None
