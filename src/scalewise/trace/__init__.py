"""What really happened in a step? Reads profiler traces; imports neither torch nor the physics."""
