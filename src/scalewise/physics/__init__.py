"""Pure functions on floats or arrays: kernels, collectives, power, money. SI units."""
