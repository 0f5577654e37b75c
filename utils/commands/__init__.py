"""
Runs everyday commands twice, plainly and with caches, for ``everyday.py``.

``command`` says what a command is, the files that it names have the commands, and ``table`` all of them. ``folder``
remembers what is in a folder and puts it back, ``contender`` knows the caches, ``trial`` what is done with a command,
and ``report`` what is told of it.
"""
