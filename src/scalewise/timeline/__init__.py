"""One training step, event by event: the second way to the number of `estimate`."""
