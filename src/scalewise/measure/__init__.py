"""The real thing: training steps on the devices that are here, and records of what they took.

Only files of this package (and of `trace`) import torch, and only when something is measured:
`decoder`, `data`, `recompute`, `tensor_parallel`, `data_parallel`, `pipeline`, `parallel`, `train`
and `worker` need it; `job`, `machine`, `power`, `records`, `metrics`, `rows` and `launch` do not.
"""
