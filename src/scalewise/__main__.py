"""Entry point of `python -m scalewise`, for machines where the script is not on the path."""

from __future__ import annotations

from scalewise.cli.main import main

if __name__ == "__main__":
    main()
