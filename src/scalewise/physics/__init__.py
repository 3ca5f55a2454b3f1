"""Closed forms on floats or arrays: kernels, collectives, overlap, memory, power, cost; SI."""
