"""Versions of PyTorch whose private names the capture replaces."""

from __future__ import annotations

from scalewise.errors import InputError

SUPPORTED = ("2.13",)
"""Releases that captures were compared with real Gloo runs on (tests/program)."""


def check_version(version: str) -> None:
    """Refuse a PyTorch whose private names were never checked.

    Args:
        version: `torch.__version__`.

    >>> check_version("2.13.0+cpu")
    """
    release = ".".join(version.split(".")[:2])
    if release not in SUPPORTED:
        raise InputError(
            f"PyTorch {version} cannot be captured: checked are {', '.join(SUPPORTED)}",
            hint=f"pip install 'torch=={SUPPORTED[-1]}.*' in an environment of its own",
        )
