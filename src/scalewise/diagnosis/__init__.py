"""From a measured number to ranked causes."""
