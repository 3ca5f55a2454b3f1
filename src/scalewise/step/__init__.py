"""One training step: what each technique adds, what overlaps what, and what it all costs."""
