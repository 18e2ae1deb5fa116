"""Logs of a real board during training runs that pause for known reasons."""
