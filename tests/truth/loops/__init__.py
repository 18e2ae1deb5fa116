"""Simulated training loops whose truth is known."""
