"""Many estimates for one question: curves over sizes, and the best of many strategies."""
