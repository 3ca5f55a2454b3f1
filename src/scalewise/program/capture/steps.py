"""Boundaries of optimizer steps in a program that nobody divided: one whole step is kept.

An update ends a step, the next forward of a module begins one. The first step has one-time work
(buckets of DDP, caches of DTensor), so the second one is kept.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import torch

if TYPE_CHECKING:
    from scalewise.program.capture.tracer import Tracer

WARMUP = 1
"""Steps before the one that is kept."""


IN_A_THREAD = "it works in a thread of its own, where nothing is pretended"


class Captured(BaseException):
    """The step is captured: the program need not go on.

    No `Exception`, so that a program that catches those does not go on all the same.
    """


class Steps:
    """Counts steps of a program, and stops it after the one that is kept."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self.done = 0
        self.updated = False
        self.modules: list[Any] = []
        """Outermost modules of the kept step."""
        self.started = time.process_time()
        self.build_seconds = 0.0
        self.depth = 0
        self.stopped = False
        self.in_a_thread = False
        """Whether a thread of the program ended with an error."""

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Watch updates and forwards."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        def update(optimizer: Any, args: Any, kwargs: Any) -> None:
            self.updated = True

        def enter(module: Any, inputs: Any) -> None:
            if threading.current_thread() is not threading.main_thread():
                raise Captured
            if self.depth == 0:
                if self.stopped:
                    self.leave()
                if self.updated:
                    self.end()
                if module not in self.modules:
                    self.modules.append(module)
            self.depth += 1

        def leave(module: Any, inputs: Any, out: Any) -> None:
            self.depth -= 1

        def failed(thread: threading.ExceptHookArgs) -> None:
            self.in_a_thread = True
            if thread.exc_type is not Captured:
                plain(thread)

        plain, threading.excepthook = threading.excepthook, failed
        hooks = torch.nn.modules.module
        watched = [
            register_optimizer_step_post_hook(update),
            hooks.register_module_forward_pre_hook(enter),
            hooks.register_module_forward_hook(leave, always_call=True),
        ]
        try:
            yield
        finally:
            threading.excepthook = plain
            for hook in watched:
                hook.remove()

    def end(self) -> None:
        """End a step; stop the program after the one that is kept."""
        self.done += 1
        self.updated = False
        if self.done > WARMUP:
            self.stopped = True
            raise Captured
        self.modules.clear()
        self.begin()

    def leave(self) -> NoReturn:
        """End a process that goes on after `Captured`: only a bare except does."""
        print("the program catches BaseException, by which a capture ends it", file=sys.stderr)
        sys.stderr.flush()
        os._exit(1)

    def begin(self) -> None:
        """Begin the step that is kept, unless another follows."""
        self.build_seconds = time.process_time() - self.started
        self.tracer.restart()

    @property
    def complete(self) -> bool:
        """Whether a whole step after the first was seen."""
        return self.done > WARMUP or (self.done == WARMUP and self.updated)
