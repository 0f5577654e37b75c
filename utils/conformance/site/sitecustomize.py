"""
What every Python of a conformance test starts with, on both sides: projects that draw random numbers draw the same
ones, and those that only sleep, to show how tasks run side by side, sleep less ($CONFORMANCE_HASTE times).
"""

import os
import random
import time

random.seed(2005)
os.register_at_fork(after_in_child=lambda: random.seed(2005))  # where Python itself seeds anew

sleep = time.sleep
# not read at the start: forks of one Python run several projects
time.sleep = lambda seconds: sleep(seconds / float(os.environ.get("CONFORMANCE_HASTE", "1")))
