"""Many captures in one process: PyTorch takes seconds to start, a small capture less than one.

captures_of([job("pp2")])[0]        # one per stage
answers_of([CaptureSpec(adapter="script", world=4, arguments=("train.py",))])
"""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from scalewise.program.capture.spec import CaptureSpec
from scalewise.program.run import _stage_ranks

NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.head = nn.Embedding(16, 8), nn.Linear(8, 16)
    def forward(self, tokens):
        return self.head(self.tok(tokens))
"""
"""Model of programs: two layers of no size."""


def captures_of(jobs):
    """Captures of jobs of the decoder, one per stage each."""
    return _in_one_process(_captures, jobs)


def answers_of(specs):
    """What a capturing process answers to each."""
    return _in_one_process(_answer, specs)


def _in_one_process(do, things):
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return list(pool.map(do, things))


def _captures(job):
    first = _capture(job, 0)
    return [first if rank == 0 else _capture(job, rank) for rank in _stage_ranks(first)]


def _capture(job, rank):
    found = _answer(CaptureSpec(adapter="decoder", world=job.ranks, job=job, rank=rank))
    assert found.capture is not None, found.error or found.refused
    return found.capture


def _answer(spec):
    from scalewise.program.capture.child import answer

    return answer(spec)
