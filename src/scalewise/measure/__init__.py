"""The real thing: training steps on the devices that are here, and records of what they took.

Only files of this package (and of `trace`) import torch, and only when something is measured:
`decoder`, `data`, `recompute`, `tensor_parallel`, `data_parallel`, `pipeline`, `parallel`, `train`,
`collectives`, `kernels`, `timing`, `ranks` and the workers need it; everything else does not.
Ranks are started by torchrun on one machine (`launch`), or by Slurm on many (`slurm`).
"""
