"""Asks a driver everything once, and notes what it answered and what that cost."""
