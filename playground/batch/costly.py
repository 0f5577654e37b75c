#! /usr/bin/env python3

"""
A compiler with a costly start, as one that loads a big runtime, or waits for a license: it takes half a second, however
few files it is given. Each line of a shape is a number, and the output holds their sum.

	costly.py -o OUTPUT SHAPE
	costly.py -d FOLDER SHAPE...
"""

import os
import sys
import time

START = float(os.environ.get("COSTLY_START", "0.5"))


def translate(source, target):
	with open(source) as f:
		try:
			total = sum(map(int, f))
		except ValueError as e:
			sys.stderr.write("%s: %s\n" % (source, e))
			return 1
	with open(target, "w") as f:
		f.write("%d\n" % total)
	return 0


def main(option, place, *sources):
	time.sleep(START)
	status = 0
	for source in sources:
		name = os.path.splitext(os.path.basename(source))[0] + ".sum"
		status |= translate(source, place if option == "-o" else os.path.join(place, name))
	return status


if __name__ == "__main__":
	sys.exit(main(*sys.argv[1:]))
