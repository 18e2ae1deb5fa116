"""Specification of the error that tells whose tagger was meant."""

from __future__ import annotations

import sys

import pytest

from trainer_hooks.trainers.tagger import Tagger


class OneWithHooks(Tagger):
    def on_fit_end(self) -> None:
        """Python would guess that the trainer had meant this."""


class TestTheErrorOfAMistakenTagger:
    def test_ends_with_its_own_sentence_and_no_guess_of_pythons(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(AttributeError) as raised:
            OneWithHooks().on_init_end  # noqa: B018

        sys.__excepthook__(raised.type, raised.value, None)
        printed = capsys.readouterr().err
        assert "from trainer_hooks.huggingface import PhaseTagger" in printed
        assert printed.endswith(f"{raised.value}\n")
        assert "Did you mean" not in printed
