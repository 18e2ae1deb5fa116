"""Trainings to learn from and to try gpumon with; each is a program of its own."""
