"""Measured runs against estimates: validate, calibrate, leave out."""
