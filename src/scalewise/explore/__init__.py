"""Searches over strategies, sizes and upgrades, as many estimates at once."""
