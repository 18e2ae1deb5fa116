"""Fits the model of suspicion on generated machines, and tests it on generators left out."""
