"""Versions of PyTorch whose private names the capture replaces."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from scalewise.errors import InputError

SUPPORTED = ("2.13",)
"""Releases that captures were compared with real Gloo runs on (tests/program)."""

FRAMEWORKS = {"torchtitan": ("0.3",), "transformers": ("5.23",), "accelerate": ("1.15",)}
"""Releases of frameworks that were captured."""


def check_framework(name: str) -> str:
    """Return the version of a framework, and refuse one whose parts were never replaced.

    Args:
        name: Of the package.

    Raises:
        InputError: If it is not installed, or another release.
    """
    try:
        found = version(name)
    except PackageNotFoundError:
        raise InputError(
            f"{name} is not installed", hint=f"pip install '{name}=={FRAMEWORKS[name][-1]}.*'"
        ) from None
    if not found.startswith(FRAMEWORKS[name]):
        raise InputError(
            f"{name} {found} cannot be captured: checked are {', '.join(FRAMEWORKS[name])}",
            hint=f"pip install '{name}=={FRAMEWORKS[name][-1]}.*'",
        )
    return found


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
