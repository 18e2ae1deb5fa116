"""Specification of the fair share: no owner loses a guaranteed ring to one who has more."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpumon.core.ring_format.fair_share import (
    FairSlots,
    FairTurns,
    RingCandidate,
    RingChoice,
    RunCandidate,
    choose_rings,
    fair_shares,
    guaranteed_share,
    largest_owners,
    left_out_message,
)

SLOTS = 256
ALICE, BOB, CAROL = 1000, 1001, 1002


def ring(owner_uid: int, number: int, *, freed_ns: int | None = None) -> RingCandidate:
    return RingCandidate(
        ("/run", f"{owner_uid}-{number}.ring", number), owner_uid, number, freed_ns
    )


def rings(owner_uid: int, count: int, *, since: int = 0) -> list[RingCandidate]:
    return [ring(owner_uid, since + number) for number in range(count)]


def taken_of(choice: RingChoice, owner_uid: int) -> list[RingCandidate]:
    return [claim for claim in choice.taken if claim.owner_uid == owner_uid]


class TestTooManyRings:
    def test_cost_the_owner_of_most_the_newest(self) -> None:
        greedy, honest = rings(ALICE, 300), rings(BOB, 1, since=900)

        choice = choose_rings(greedy + honest, SLOTS)

        assert taken_of(choice, BOB) == honest
        assert taken_of(choice, ALICE) == greedy[:255]
        assert choice.left_out == {ALICE: 45}

    def test_are_first_those_that_ended_longest_ago(self) -> None:
        ended = [ring(ALICE, number, freed_ns=1_000 - number) for number in range(3)]

        choice = choose_rings([*ended, ring(ALICE, 50), ring(ALICE, 51)], slots=3)

        assert choice.given_up == (ended[1], ended[2])
        assert {claim.place[2] for claim in choice.taken} == {0, 50, 51}
        assert choice.left_out == {}

    def test_of_an_owner_that_ended_make_no_room_for_another_owner(self) -> None:
        ended = [ring(BOB, number, freed_ns=number) for number in range(128)]

        choice = choose_rings(rings(ALICE, 300, since=500) + ended, SLOTS)

        assert len(taken_of(choice, BOB)) == 128
        assert choice.left_out == {ALICE: 172}

    def test_that_were_only_counted_are_left_out_too(self) -> None:
        choice = choose_rings(rings(ALICE, 256), SLOTS, {ALICE: 99_744, BOB: 0})

        assert choice.left_out == {ALICE: 99_744}


class TestMoreOwnersThanSlots:
    def test_leave_the_newest_owners_out_which_is_not_fair(self) -> None:
        choice = choose_rings([ring(uid, uid) for uid in range(300)], SLOTS)

        assert [claim.owner_uid for claim in choice.taken] == list(range(256))
        assert set(choice.left_out) == set(range(256, 300))
        assert not choice.is_fair

    def test_give_each_of_the_oldest_owners_one(self) -> None:
        choice = choose_rings([ring(uid, 300 * n + uid) for uid in range(300) for n in (0, 1)], 256)

        assert [claim.owner_uid for claim in choice.taken] == list(range(256))


class TestTheMessage:
    def test_counts_sixteen_owners_and_sums_up_the_others(self) -> None:
        listed = largest_owners(dict.fromkeys(range(100), 1) | {ALICE: 500})

        assert listed[0] == (ALICE, 500)
        assert len(listed) == 17
        assert listed[-1] == (None, 85)

    @pytest.mark.parametrize(
        ("left_out", "total", "whose"),
        [(((ALICE, 1),), "1 phase ring is", "1 of uid 1000"),
         (((ALICE, 2), (None, 1)), "3 phase rings are", "2 of uid 1000 and 1 of others")],
    )  # fmt: skip
    def test_says_how_many_are_not_read_and_whose(
        self, left_out: tuple[tuple[int | None, int], ...], total: str, whose: str
    ) -> None:
        message = left_out_message(left_out, 3)

        assert message.startswith(total)
        assert message.endswith(f"3: {whose}")


wishes = st.dictionaries(st.integers(0, 400), st.integers(0, 600), max_size=300)
claims_of_some = st.lists(
    st.builds(
        RingCandidate,
        st.tuples(st.just("/run"), st.text("ab", max_size=3), st.integers(0, 40)),
        st.integers(0, 6),
        st.integers(0, 30),
        st.none() | st.integers(0, 9),
    ),
    max_size=60,
    unique_by=lambda claim: claim.place,
)


class TestLaws:
    @example({ALICE: 1, BOB: 7, CAROL: 100}, 18)  # two rounds, and no more than he wants in any
    @given(wishes, st.integers(1, 300))
    def test_everybody_has_his_part_or_what_he_wants_and_no_place_is_empty_meanwhile(
        self, wanted: dict[int, int], slots: int
    ) -> None:
        parts = fair_shares(wanted, slots)
        owners = sum(1 for count in wanted.values() if count)

        assert sum(parts.values()) == min(slots, sum(wanted.values()))
        assert all(0 <= parts[owner] <= count for owner, count in wanted.items())
        if owners <= slots:
            sure = guaranteed_share(owners, slots)
            assert all(parts[owner] >= min(sure, count) for owner, count in wanted.items())

    @given(wishes, st.integers(1, 300), st.integers(1, 600))
    def test_who_wants_more_takes_nobodys_part(
        self, wanted: dict[int, int], slots: int, more: int
    ) -> None:
        if not wanted:
            return
        greedy = next(iter(wanted))
        before = fair_shares(wanted, slots)
        after = fair_shares({**wanted, greedy: wanted[greedy] + more}, slots)
        sure = guaranteed_share(sum(1 for count in wanted.values() if count) + 1, slots)

        for owner, count in wanted.items():
            if owner != greedy:
                assert after[owner] >= min(before[owner], sure, count) or len(wanted) > slots

    @given(claims_of_some, st.integers(1, 40))
    def test_each_ring_is_taken_given_up_or_left_out(
        self, claims: list[RingCandidate], slots: int
    ) -> None:
        choice = choose_rings(claims, slots)

        reported = len(choice.taken) + len(choice.given_up) + sum(choice.left_out.values())
        assert reported == len(claims)
        assert len(set(choice.taken) | set(choice.given_up)) == reported - sum(
            choice.left_out.values()
        )
        assert len(choice.taken) == min(slots, len(claims))
        assert all(claim.freed_ns is not None for claim in choice.given_up)

    @given(claims_of_some, st.integers(1, 40), st.randoms())
    def test_the_order_in_which_they_are_found_says_nothing(
        self, claims: list[RingCandidate], slots: int, random: object
    ) -> None:
        shuffled = list(claims)
        random.shuffle(shuffled)  # type: ignore[attr-defined]

        assert choose_rings(shuffled, slots) == choose_rings(claims, slots)

    @given(claims_of_some, st.integers(7, 40), st.integers(0, 6), st.integers(1, 60))
    def test_no_flood_of_one_owner_pushes_out_a_ring_within_anothers_part(
        self, claims: list[RingCandidate], slots: int, greedy: int, flood: int
    ) -> None:
        before = choose_rings(claims, slots)  # of at most seven owners
        new = [RingCandidate(("/run", "flood", 1_000 + n), greedy, 100 + n) for n in range(flood)]
        after = choose_rings([*claims, *new], slots)
        owners = {claim.owner_uid for claim in claims} | {greedy}
        assert before.is_fair
        assert after.is_fair
        sure = guaranteed_share(len(owners), slots)

        for owner in owners - {greedy}:
            kept, had = taken_of(after, owner), taken_of(before, owner)
            assert kept[:sure] == had[:sure]


def run(
    key: str, owner_uid: int, *, written_ns: int = 0, is_alive: bool = True
) -> RunCandidate[str]:
    return RunCandidate(key, owner_uid, is_alive, written_ns)


class TestPlacesForRuns:
    def test_are_for_all_where_there_is_room(self) -> None:
        slots = FairSlots[str](2)

        assert slots.choose([run("a", ALICE), run("b", ALICE)]) == {"a", "b"}
        assert slots.left_out == {}

    def test_of_one_owner_with_many_leave_the_others_theirs(self) -> None:
        slots = FairSlots[str](64)
        many = [run(f"a{number}", ALICE) for number in range(300)]
        others = [run(f"b{number}", BOB) for number in range(20)]

        chosen = slots.choose([*many, *others])

        assert chosen >= {one.key for one in others}
        assert len(chosen) == 64
        assert slots.left_out == {ALICE: 256}

    def test_are_given_to_who_recorded_something_last(self) -> None:
        slots = FairSlots[str](1)

        assert slots.choose([run("idle", ALICE), run("new", ALICE, written_ns=9)]) == {"new"}

    def test_are_kept_by_runs_that_live(self) -> None:
        slots = FairSlots[str](1)
        slots.choose([run("first", ALICE)])

        for written_ns in range(5):
            newer = run("newer", ALICE, written_ns=written_ns)
            assert slots.choose([run("first", ALICE), newer]) == {"first"}
        ended = run("first", ALICE, is_alive=False)
        assert slots.choose([ended, run("newer", ALICE)]) == {"newer"}

    def test_of_runs_that_live_are_not_taken_by_runs_that_are_over(self) -> None:
        slots = FairSlots[str](64)
        living = [run(f"a{number}", ALICE) for number in range(64)]
        over = [run(f"b{number}", BOB, written_ns=9, is_alive=False) for number in range(40)]
        slots.choose(living)

        assert slots.choose([*over, *living]) == {claim.key for claim in living}
        assert slots.left_out == {}

    def test_are_had_by_owners_of_living_runs_before_owners_of_others(self) -> None:
        slots = FairSlots[str](64)
        over = [run(f"run of {uid}", uid, is_alive=False) for uid in range(64)]
        slots.choose(over)
        living = [run(f"run of {uid}", uid) for uid in range(100, 110)]

        assert slots.choose([*over, *living]) >= {claim.key for claim in living}

    def test_pass_to_the_newest_that_ended_where_no_run_lives(self) -> None:
        slots = FairSlots[str](1)
        ended = [run(key, ALICE, written_ns=at, is_alive=False) for key, at in (("a", 1), ("b", 2))]

        assert slots.choose(ended) == {"b"}

    def test_with_too_many_owners_are_kept_by_those_who_have_one(self) -> None:
        slots = FairSlots[str](2)
        slots.choose([run("b", BOB), run("c", CAROL)])

        assert slots.choose([run("a", ALICE), run("b", BOB), run("c", CAROL)]) == {"b", "c"}
        assert slots.left_out == {ALICE: 1}


class TestTurns:
    def test_come_to_everybody_and_to_each_owner_in_each_tick(self) -> None:
        turns = FairTurns[str](4)
        owner_of = {**{f"a{number}": ALICE for number in range(1000)}, "b": BOB}
        had_turn = []
        for _ in range(334):
            chosen = turns.choose(owner_of)
            assert len(chosen) == 4
            assert "b" in chosen
            for key in chosen:
                turns.note(key)
            had_turn += chosen

        assert set(had_turn) == set(owner_of)

    def test_with_more_owners_than_turns_go_round(self) -> None:
        turns = FairTurns[str](32)
        owner_of = {f"run of {uid}": uid for uid in range(300)}
        had_turn: set[str] = set()
        for _ in range(10):
            chosen = turns.choose(owner_of)
            for key in chosen:
                turns.note(key)
            had_turn.update(chosen)

        assert had_turn == set(owner_of)

    def test_are_remembered_while_a_run_wants_none(self) -> None:
        turns = FairTurns[str](32)
        steady = dict.fromkeys(["s0", "s1", "s2", "s3"], ALICE)
        halves = [{f"{half}{number}": ALICE for number in range(32)} for half in "xy"]
        counted: Counter[str] = Counter()
        for tick in range(120):
            for key in turns.choose({**halves[tick % 2], **steady}):
                turns.note(key)
                counted[key] += 1

        assert min(counted[key] for key in steady) >= 50
