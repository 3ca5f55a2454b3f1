"""Slurm jobs that compute independent pieces, each of which is done or lost.

`script` writes and submits batch scripts, `queue` asks Slurm about jobs, and `jobs` runs a list of
pieces to its end: submit, poll, collect, resubmit, resume. `sweep` and `measure` add what a piece
is.
"""
