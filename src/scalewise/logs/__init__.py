"""Logs of training runs: step lines of frameworks, exports of metrics, and tables of runs."""
