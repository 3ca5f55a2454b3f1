"""Sweeps of independent points: computed once, stored, on one core, all cores, or Slurm.

Nothing here knows of training: a task is any frozen struct, a point is the result of a function.
"""
