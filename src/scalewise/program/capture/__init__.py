"""Capture of one rank under PyTorch's fake process group and fake tensors; needs PyTorch.

Everything here runs in a child process (`child`), because it replaces parts of PyTorch by name. The
names are private and were checked with the versions in `versions.SUPPORTED`.
"""
