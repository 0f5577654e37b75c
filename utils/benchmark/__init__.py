"""
The measuring instrument behind ``utils/bench.py``.

A *contender* builds a project in one way, a *scenario* is a sequence of phases, a *lane* is one contender with its
compiler and interpreter, and a *run* is one scenario of one lane, which gives measurements. ``campaign`` orders the
runs, ``ledger`` keeps what they gave, ``report`` turns that into tables and knows nothing of how it came about.
"""
