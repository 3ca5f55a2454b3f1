"""Breakdown of profiler traces of real steps; imports neither torch nor the physics."""
