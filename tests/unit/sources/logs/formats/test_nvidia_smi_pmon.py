"""Specification of nvidia-smi pmon: a GPU is as busy as its processes together."""

from __future__ import annotations

from tests.builders_log_corners import corner, heard

U = ("# gpu pid type sm mem enc dec command", "# Idx # C/G % % % % name")
T = ("#Time gpu pid type sm mem enc dec fb command", "#HH:MM:SS Idx # C/G % % % % MB name")
NOBODY = "0 - - - - - - -"

CORNERS = {
    "a tick is the sum over the processes of a GPU": corner(
        *U, "0 11 C 40 1 - - python", "0 12 C 25 1 - - python -m x", "1 13 C 7 1 - - a",
        of=[0, 1], busy=[65, 7], noted="sum over its processes",
    ),
    "a tick is at most the whole time": corner(
        *U, "0 11 C 80 1 - - a", "0 12 C 70 1 - - b", busy=[100]
    ),
    "a tick begins anew where a process comes up again": corner(
        *U, "0 11 C 80 1 - - a", "0 11 C 70 1 - - a", "0 12 C 5 1 - - b", of=[0, 0], busy=[80, 75]
    ),
    "a GPU without a process is idle": corner(
        *U, NOBODY, "0 11 C 70 1 - - a", NOBODY, of=[0, 0, 0], busy=[0, 70, 0]
    ),
    "a GPU whose processes did nothing is idle where it can tell": corner(
        *U, "0 11 C 70 1 - - a", "0 11 C - - - - a", of=[0, 0], busy=[70, 0]
    ),
    "a GPU has no answer as long as it never told one": corner(
        *U, "0 11 C - - - - a", "0 11 C 70 1 - - a", of=[0, 0], busy=[None, 70], skipped=1
    ),
    "ticks are not known beside a row that is cut": corner(
        *U, "0 11 C 10 1 - - a", "0 12", "0 11 C 70 1 - - a", "0 11 C 71 1 - - a",
        of=[0, 0, 0], busy=[None, None, 71], skipped=1,
    ),
    "ticks are not known beside a row of a GPU that cannot be": corner(
        *U, "0 11 C 10 1 - - a", "9999999 12 C 30 1 - - b", "0 11 C 70 1 - - a",
        "0 11 C 71 1 - - a", of=[0, 0, 0], busy=[None, None, 71], skipped=1,
    ),
    "a tick is not known where one of its shares is no number": corner(
        *U, "0 11 C 10 1 - - a", "0 12 C 3x 1 - - b", "0 11 C 70 1 - - a",
        of=[0, 0], busy=[None, 70], skipped=1,
    ),
    "a tick ends with its second": corner(
        *T, "10:00:00 0 11 C 10 1 - - 500 a", "10:00:00 0 12 C 20 1 - - 700 b",
        "10:00:01 0 13 C 30 1 - - 900 c", busy=[30, 30], used_mib=[1200, 900],
    ),
    "a tick without an end holds no more processes than a machine has": corner(
        *U, *(f"0 {pid} C 1 1 - - a" for pid in range(20_000)), NOBODY, NOBODY,
        busy=[None, None, 0], skipped=20_000 - 16_384,
    ),
    "a log of memory only is of no use": corner(
        "# gpu pid type fb command", "0 11 C 500 a", refused="in the column sm, with -s u"
    ),
    "a log without a header is not guessed at": corner(
        *["0, 11, C, 45, 3, -, -, python"] * 2, refused="before a header"
    ),
}  # fmt: skip


class TestACorner:
    test_is_heard_as_it_is_told = heard(CORNERS)
