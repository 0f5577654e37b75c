"""
What ``utils/fuzzobserve.py`` tries the observation of commands with.

An ``action`` of ``pieces/`` makes a program come to know of files in one way. A ``program`` is drawn of some, written
as C (``source``), made (``workshop``), and run under strace by an ``observer``. What ``strace`` saw is held against
what was noted (``comparison``), many times (``trial``).
"""
