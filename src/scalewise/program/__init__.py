"""Your own training program on pretend ranks: what it communicates and computes, and its step time.

Nothing is allocated and no GPU is needed: one process captures what one rank does
(`capture`), the rest reads, checks, prices and compares the capture.
"""
