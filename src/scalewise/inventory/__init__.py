"""A machine as its own tools describe it: readers of their output, and a cluster made of it."""
