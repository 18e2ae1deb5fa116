"""What stack samples show, as JSON and back, with folders only for those who may see them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpumon.core.codecs.stack_codec import TRUSTED, Viewer, decode_finding, encode_finding
from gpumon.core.phase import IdleCause
from gpumon.core.stacks.evidence import PlaceCount, StackFinding, UserFunction
from gpumon.core.stacks.stack import StackFrame

LOADER = StackFrame(
    "_BaseDataLoaderIter.__next__", "/e/lib/python3.11/site-packages/torch/utils/data/dataloader.py"
)
CALL = StackFrame("train\x1b[31m", "/home/ann/secret/train.py", 41)
PLACE = PlaceCount(IdleCause.INPUT_WAIT, "DataLoader.__next__", LOADER, CALL, 9)
FINDING = StackFinding(
    idle_samples=12,
    busy_samples=3,
    mixed_samples=2,
    unobserved_samples=1,
    failed_samples=4,
    places=(PLACE, PlaceCount(IdleCause.UNKNOWN, "", None, None, 3)),
    function=UserFunction(CALL, None, 9, 0, is_compared=True),
    owner_uid=1_000,
)


def document() -> dict[str, Any]:
    encoded = encode_finding(FINDING)
    assert encoded is not None
    decoded: dict[str, Any] = json.loads(json.dumps(encoded))
    return decoded


def test_names_files_and_no_folders() -> None:
    text = json.dumps(document())

    assert "secret" not in text
    assert "/home" not in text
    assert "\\u001b" not in text
    assert "torch/utils/data/dataloader.py" in text


@pytest.mark.parametrize("viewer", [TRUSTED, Viewer(uid=1_000)], ids=["trusted", "its user"])
def test_shows_whole_paths_to_those_who_may_see_them(viewer: Viewer) -> None:
    shown = encode_finding(FINDING, viewer)
    assert shown is not None
    caller = shown["places"][0]["caller"]
    read = decode_finding(json.loads(json.dumps(shown)))
    assert read is not None

    assert (caller["file"], caller["path"]) == ("train.py", CALL.path)
    assert read.places[0].caller is not None
    assert read.places[0].caller.path == CALL.path
    assert encode_finding(read, TRUSTED) == shown


@pytest.mark.parametrize("owner", [1_000, None])
@pytest.mark.parametrize("uid", [0, 1_001, None])
def test_shows_folders_to_no_other_user(owner: int | None, uid: int | None) -> None:
    shown = encode_finding(FINDING._replace(owner_uid=owner), Viewer(uid))

    assert "secret" not in json.dumps(shown)


def test_is_read_back_and_written_again() -> None:
    found = decode_finding(document())

    assert found is not None
    assert (found.idle_samples, found.failed_samples) == (12, 4)
    assert encode_finding(found) == document()


def test_of_nothing_is_nothing() -> None:
    assert encode_finding(None) is None
    assert decode_finding(None) is None


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("places",), 5),
        (("places", 0), "text"),
        (("places", 0, "cause"), "lunch"),
        (("places", 0, "samples"), -1),
        (("places", 0, "samples"), "9"),
        (("places", 0, "caller", "line"), 1e400),
        (("places", 0, "caller"), []),
        (("function", "frame"), None),
        (("function", "idle_samples"), None),
        (("idle_samples",), "many"),
    ],
)
def test_that_is_damaged_is_refused(path: tuple[Any, ...], value: Any) -> None:
    damaged = document()
    inner = damaged
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value

    with pytest.raises((ValueError, KeyError, TypeError)):
        decode_finding(damaged)
