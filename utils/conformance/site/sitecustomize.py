"""
What every Python of a conformance test starts with, on both sides: projects that draw random numbers draw the same
ones, and those that only sleep, to show how tasks run side by side, sleep less ($CONFORMANCE_HASTE times).
"""

import os
import random
import time

random.seed(2005)

haste = float(os.environ.get("CONFORMANCE_HASTE", "1"))
if haste > 1:
	sleep = time.sleep
	time.sleep = lambda seconds: sleep(seconds / haste)
