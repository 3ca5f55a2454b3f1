"""Many independent points: computed once, kept on disk, on one core, on all of them, or on Slurm.

Knows nothing of training: a task is any frozen struct, a point is what a function makes of it.
"""
