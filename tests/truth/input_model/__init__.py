"""Fits the model of suspicion, and tests it on generators that were left out."""
