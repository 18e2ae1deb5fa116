from __future__ import annotations

from pathlib import Path

import pytest

import gpumon
from gpumon.core.stacks.frames import ROWS, is_user_code, library_path, row_of
from gpumon.core.stacks.stack import StackFrame

OURS = Path(gpumon.__file__).parent / "core/phase.py"


class TestUserCode:
    @pytest.mark.parametrize(
        ("path", "function"),
        [
            ("/home/me/train.py", "train"),
            ("/home/me/queue.py", "Queue.get"),
            ("/tmp/ipykernel_7/301.py", "<module>"),
            ("<stdin>", "<module>"),
            ("<string>", "train"),
        ],
    )
    def test_is_of_the_user(self, path: str, function: str) -> None:
        assert is_user_code(StackFrame(function, path))

    @pytest.mark.parametrize(
        ("path", "function"),
        [
            ("/env/lib/python3.11/site-packages/torch/serialization.py", "save"),
            ("/usr/lib/python3/dist-packages/torch/serialization.py", "save"),
            ("/usr/lib/python3.11/queue.py", "Queue.get"),
            ("/opt/lib/python3.14t/queue.py", "Queue.get"),
            ("<frozen runpy>", "_run_code"),
            ("<string>", "__init__"),
            ("<eval_with_key>.0", "forward"),
            ("/tmp/torchinductor_me/ab/cab.py", "call"),
            (str(OURS), "anything"),
            ("", "anything"),
        ],
    )
    def test_is_of_no_user(self, path: str, function: str) -> None:
        assert not is_user_code(StackFrame(function, path))


class TestRowOf:
    def test_a_file_of_the_user_with_a_librarys_name_has_none(self) -> None:
        assert row_of(StackFrame("Queue.get", "/home/me/queue.py")) is None
        assert row_of(StackFrame("save", "/home/me/torch/serialization.py")) is None

    def test_another_class_of_the_same_file_has_none(self) -> None:
        path = "/env/lib/python3.12/site-packages/torch/utils/data/dataloader.py"

        assert row_of(StackFrame("DataLoader.__len__", path)) is None

    def test_a_library_in_a_virtual_environment_of_a_project_has_its_path(self) -> None:
        path = "/home/me/lib/python3.11/project/.venv/lib/python3.11/site-packages/torch/a.py"

        assert library_path(path) == "torch/a.py"


def test_a_library_with_a_version_is_run_by_a_program() -> None:
    programs = Path(__file__).parents[3] / "stacks/programs"
    sources = "".join(path.read_text(encoding="utf-8") for path in programs.glob("*.py"))
    seen_by_hand = {"lightning", "transformers"}
    libraries = {row.library for row in ROWS if row.version is not None} - seen_by_hand
    imports = {name.removesuffix("-checkpoint") for name in libraries - {"python"}}

    assert [name for name in imports if name not in sources] == []
