"""
The parts of ``utils/fuzzcache.py``, which tests a cache.

``edits`` change a ``project``, a ``command`` is chosen for what that is then, and a ``trial`` runs it through the
wrapper and without, and compares what is left.
"""
