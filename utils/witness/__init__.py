"""
What ``utils/fuzzobserve.py`` tries the observation of commands with.

An ``action`` of ``pieces/`` makes a program come to know of files in one way; a ``program`` is drawn of some, written
as C (``source``), made (``workshop``), and run under strace by an ``observer``. What ``strace`` saw and what was noted are
held against each other (``comparison``), many times (``trial``).
"""
