"""
The parts of ``utils/faults.py``, which disturbs builds.

A ``project`` is built by one of the ``builders`` in a ``scene`` of its own, while faults strike: those of ``signals``,
``disks``, ``files`` and ``circumstances``, which ``kinds`` lists. A ``trial`` orders the steps, and holds what comes of
them against a ``reference``, a plain build of the same files. ``processes`` finds what a build has started.
"""
