"""Measured runs against estimates: validation, calibration, leave-one-source-out."""
