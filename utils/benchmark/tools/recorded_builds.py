"""
A tool for Waf that has ``--timeline`` record a build as ever, and then write nothing.

So the price of recording is seen beside that of the files, which are written when the build is over.
"""

from waflib_extras.hooks import lifecycle


def options(opt) -> None:
	lifecycle.find().participants["timeline"].draw = lambda recording: None
