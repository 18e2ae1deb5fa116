"""Specification of the fair share: no owner loses a guaranteed ring to one who has more."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import example, given
from hypothesis import strategies as st

from gpumon.core.owner_quotas import (
    FairSlots,
    FairTurns,
    RingCandidate,
    RingChoice,
    RunCandidate,
    choose_rings,
    fair_shares,
    guaranteed_share,
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
    return [one for one in choice.taken if one.owner_uid == owner_uid]


class TestTooManyRings:
    def test_cost_the_largest_owner_its_newest_rings(self) -> None:
        greedy, honest = rings(ALICE, 300), rings(BOB, 1, since=900)

        choice = choose_rings(greedy + honest, SLOTS)

        assert taken_of(choice, BOB) == honest
        assert taken_of(choice, ALICE) == greedy[:255]
        assert choice.left_out == {ALICE: 45}

    def test_are_first_those_that_ended_longest_ago(self) -> None:
        ended = [ring(ALICE, number, freed_ns=1_000 - number) for number in range(3)]

        choice = choose_rings([*ended, ring(ALICE, 50), ring(ALICE, 51)], slots=3)

        assert choice.given_up == (ended[1], ended[2])
        assert {one.place[2] for one in choice.taken} == {0, 50, 51}
        assert choice.left_out == {}

    def test_make_no_room_for_another_owner_by_having_ended(self) -> None:
        ended = [ring(BOB, number, freed_ns=number) for number in range(128)]

        choice = choose_rings(rings(ALICE, 300, since=500) + ended, SLOTS)

        assert len(taken_of(choice, BOB)) == 128
        assert choice.left_out == {ALICE: 172}


class TestMoreOwnersThanSlots:
    def test_leave_the_newest_owners_out_which_is_not_fair(self) -> None:
        choice = choose_rings([ring(uid, uid) for uid in range(300)], SLOTS)

        assert [one.owner_uid for one in choice.taken] == list(range(256))
        assert set(choice.left_out) == set(range(256, 300))
        assert not choice.is_fair
        assert not choose_rings([], SLOTS, {BOB: 1}).is_fair  # none was listed


wishes = st.dictionaries(st.integers(0, 400), st.integers(0, 600), max_size=300)
candidate_lists = st.lists(
    st.builds(
        RingCandidate,
        st.tuples(st.just("/run"), st.text("ab", max_size=3), st.integers(0, 40)),
        st.integers(0, 6),
        st.integers(0, 30),
        st.none() | st.integers(0, 9),
    ),
    max_size=60,
    unique_by=lambda one: one.place,
)


class TestLaws:
    @example({ALICE: 1, BOB: 7, CAROL: 100}, 18)  # two rounds, and never more than wanted
    @given(wishes, st.integers(1, 300))
    def test_each_owner_gets_its_share_or_what_it_wants_and_no_slot_is_left_empty(
        self, wanted: dict[int, int], slots: int
    ) -> None:
        shares = fair_shares(wanted, slots)
        owners = sum(1 for count in wanted.values() if count)

        assert sum(shares.values()) == min(slots, sum(wanted.values()))
        assert all(0 <= shares[owner] <= count for owner, count in wanted.items())
        if owners <= slots:
            sure = guaranteed_share(owners, slots)
            assert all(shares[owner] >= min(sure, count) for owner, count in wanted.items())

    @given(candidate_lists, st.integers(1, 40))
    def test_each_ring_is_taken_given_up_or_left_out(
        self, candidates: list[RingCandidate], slots: int
    ) -> None:
        choice = choose_rings(candidates, slots)

        reported = len(choice.taken) + len(choice.given_up) + sum(choice.left_out.values())
        assert reported == len(candidates)
        assert len(set(choice.taken) | set(choice.given_up)) == reported - sum(
            choice.left_out.values()
        )
        assert len(choice.taken) == min(slots, len(candidates))
        assert all(one.freed_ns is not None for one in choice.given_up)

    @given(candidate_lists, st.integers(1, 40), st.randoms())
    def test_the_order_in_which_rings_are_found_does_not_matter(
        self, candidates: list[RingCandidate], slots: int, random: Random
    ) -> None:
        shuffled = random.sample(candidates, len(candidates))

        assert choose_rings(shuffled, slots) == choose_rings(candidates, slots)

    @given(candidate_lists, st.integers(7, 40), st.integers(0, 6), st.integers(1, 60))
    def test_no_flood_of_one_owner_costs_another_a_ring_of_its_share(
        self, candidates: list[RingCandidate], slots: int, greedy: int, flood: int
    ) -> None:
        before = choose_rings(candidates, slots)  # of at most seven owners
        new = [RingCandidate(("/run", "flood", 1_000 + n), greedy, 100 + n) for n in range(flood)]
        after = choose_rings([*candidates, *new], slots)
        owners = {one.owner_uid for one in candidates} | {greedy}
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


class TestSlots:
    def test_stay_with_their_owners_beside_a_greedy_one(self) -> None:
        slots = FairSlots[str](64)
        many = [run(f"a{number}", ALICE) for number in range(300)]
        others = [run(f"b{number}", BOB) for number in range(20)]

        chosen = slots.choose([*many, *others])

        assert chosen >= {one.key for one in others}
        assert len(chosen) == 64
        assert slots.left_out == {ALICE: 256}

    def test_are_kept_by_living_runs(self) -> None:
        slots = FairSlots[str](1)
        slots.choose([run("first", ALICE)])

        for written_ns in range(5):
            newer = run("newer", ALICE, written_ns=written_ns)
            assert slots.choose([run("first", ALICE), newer]) == {"first"}
        ended = run("first", ALICE, is_alive=False)
        assert slots.choose([ended, run("newer", ALICE)]) == {"newer"}

    def test_are_not_taken_from_living_runs_by_ended_ones(self) -> None:
        slots = FairSlots[str](64)
        living = [run(f"a{number}", ALICE) for number in range(64)]
        over = [run(f"b{number}", BOB, written_ns=9, is_alive=False) for number in range(40)]
        slots.choose(living)

        assert slots.choose([*over, *living]) == {one.key for one in living}
        assert slots.left_out == {}

    def test_without_living_runs_go_to_the_run_that_ended_last(self) -> None:
        slots = FairSlots[str](1)
        ended = [run(key, ALICE, written_ns=at, is_alive=False) for key, at in (("a", 1), ("b", 2))]

        assert slots.choose(ended) == {"b"}

    def test_are_kept_by_owners_that_have_one_if_owners_are_too_many(self) -> None:
        slots = FairSlots[str](2)
        slots.choose([run("b", BOB), run("c", CAROL)])

        assert slots.choose([run("a", ALICE), run("b", BOB), run("c", CAROL)]) == {"b", "c"}
        assert slots.left_out == {ALICE: 1}


class TestTurns:
    def test_come_to_each_run_and_to_each_owner_in_each_tick(self) -> None:
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

    def test_rotate_among_more_owners_than_turns(self) -> None:
        turns = FairTurns[str](32)
        owner_of = {f"run of {uid}": uid for uid in range(300)}
        had_turn: set[str] = set()
        for _ in range(10):
            for key in turns.choose(owner_of):
                turns.note(key)
                had_turn.add(key)

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
