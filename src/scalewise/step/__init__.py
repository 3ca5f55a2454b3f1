"""One training step: one file per technique, composed into terms that add up."""
