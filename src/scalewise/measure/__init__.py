"""Measurements on real devices: training steps, kernels and collectives.

Only this package imports torch, and only while something is measured: `decoder`, `data`,
`recompute`, `adapters`, `optimizers`, `tensor_parallel`, `data_parallel`, `pipeline`, `parallel`,
`train`, `collectives`, `kernels`, `timing`, `ranks`, `gpu_probes` and the workers need it; the
other modules do not. torchrun starts the ranks on one machine (`launch`), Slurm on many (`slurm`).
"""
