"""Studies: questions over many points in a TOML file, answered by a table, figures and verdicts."""
