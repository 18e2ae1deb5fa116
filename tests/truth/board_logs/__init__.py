"""Bare logs of one board, of trainings whose kind of pauses is known."""
