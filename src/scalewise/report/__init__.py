"""Views of results: tables, worked examples, pages. Nothing here computes."""
