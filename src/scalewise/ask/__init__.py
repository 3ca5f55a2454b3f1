"""One question, one set of defaults, one resolver: what every door of scalewise goes through."""
