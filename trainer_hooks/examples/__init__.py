"""Trainings to learn from and to try gpumon with, and what they are made of.

Those called ``*_training``, and ``unequal_gpus``, are programs.
"""
