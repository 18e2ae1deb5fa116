"""Fits the model that says how likely pauses are to wait for input, and holds it against truth."""
