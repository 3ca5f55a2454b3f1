"""Records of measurements: written by `measure`, read by `evidence`, `study` and `report`.

Nothing here imports torch, and nothing here knows how a measurement is started or what is learned
from it.
"""
