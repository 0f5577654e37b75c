"""
Random edits of real sources, for ``fuzzedits.py``.

``edit`` draws an edit of a project's files, and ``trial`` compiles after each.
"""
