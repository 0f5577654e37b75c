"""
The parts of ``utils/fuzzwaf.py``, which tests Waf.

``plan`` writes random wscripts, ``edits`` change what their rules look at, and a ``trial`` builds with our tools and,
from nothing, with stock Waf, and compares what is left. ``fuzzer`` has the same for single commands.
"""
