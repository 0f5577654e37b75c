"""
Builds a graph of Rust crates with cargo, plainly and through caches, for ``crates.py``.

``source`` knows where the crates come from, ``workspace`` how they are built and edited, ``outputs`` which files are
compared and what is right, ``trial`` what is done with a contender, and ``report`` what is told of it.
"""
