"""What all workers do: a list of jobs as JSON on stdin, a list of answers on stdout."""

import contextlib
import io
import json
import sys
import traceback


def answer(check):
    """Answer each job with {"ok": what `check` returns} or {"error": text}."""
    answers = []
    for job in json.load(sys.stdin):
        heard = io.StringIO()
        try:
            with contextlib.redirect_stdout(heard), contextlib.redirect_stderr(heard):
                answers.append({"ok": check(job)})
        except (Exception, SystemExit) as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            said = " ".join(heard.getvalue().split())[-200:]
            where = f"{last.filename.rpartition('/')[2]}:{last.lineno} {last.line}"
            answers.append({"error": f"{type(error).__name__}: {error} [{where}] {said}"[:800]})
    sys.__stdout__.write("\n" + json.dumps(answers) + "\n")
