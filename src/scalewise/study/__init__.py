"""Questions over many points, written in a file; answered by a table, figures and verdicts."""
