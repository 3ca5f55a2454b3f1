"""Discrete-event simulation of one training step, from the same durations as `estimate`."""
