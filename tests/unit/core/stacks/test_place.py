from __future__ import annotations

import pytest

from gpumon.core.phase import IdleCause
from gpumon.core.stacks.place import Place, place_of, worker_doing
from gpumon.core.stacks.stack import ProcessStack, StackFrame, StackSample, ThreadStack

PACKAGES = "/env/lib/python3.11/site-packages"
LIBRARY = "/usr/lib/python3.11"
TRAIN = StackFrame("<module>", "/home/me/train.py", 41)
RESIZE = StackFrame("resize", "/home/me/dataset.py", 88)
NEXT = StackFrame("_BaseDataLoaderIter.__next__", f"{PACKAGES}/torch/utils/data/dataloader.py", 725)
FETCH = StackFrame("_MapDatasetFetcher.fetch", f"{PACKAGES}/torch/utils/data/_utils/fetch.py", 54)
WORKER = StackFrame("_worker_loop", f"{PACKAGES}/torch/utils/data/_utils/worker.py", 374)
GET = StackFrame("Queue.get", f"{LIBRARY}/multiprocessing/queues.py", 113)
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

    @pytest.mark.parametrize("name", ["read.<locals>.<listcomp>", "<dictcomp>"])
    def test_a_comprehension_belongs_to_its_function(self, name: str) -> None:
        read = StackFrame("read", "/home/me/train.py", 15)

        place = place_of(sample(process((StackFrame(name, "/home/me/train.py", 15), read, TRAIN))))

        assert place == Place(caller=read, user_frames=(TRAIN, read))

    def test_a_process_that_could_not_be_read_is_no_evidence(self) -> None:
        assert place_of(StackSample(0, 1, 7, (process(()),))) == Place()
        assert place_of(StackSample(0, 1, 7, (), "it ended")) == Place()


class TestWorkerDoing:
    def test_waits_on_its_queue(self) -> None:
        assert worker_doing(process((GET, WORKER))).is_working is False

    def test_works_in_the_users_code(self) -> None:
        doing = worker_doing(process((RESIZE, FETCH, WORKER)))

        assert (doing.is_working, doing.user_call) == (True, RESIZE)
