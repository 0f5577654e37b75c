"""
The parts of ``utils/fuzzobserve.py``, which tests the observation of commands.

An ``action`` of ``pieces/`` makes a program come to know of files in one way. A ``program`` is drawn of some, written
as C (``source``), made (``workshop``), and run under strace by an ``observer``. The trace of ``strace`` is compared
with the notes (``comparison``), many times (``trial``).
"""
