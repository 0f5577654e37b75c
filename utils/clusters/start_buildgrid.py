"""
Runs BuildGrid's command `bgd`, and leaves out a check that takes more than half of a server's start.

BuildGrid checks its settings against schemas that come with it. At each start, it first checks these schemas.
"""

import sys

import jsonschema
from buildgrid.server.app import cli

jsonschema.Draft202012Validator.check_schema = lambda *args, **kw: None  # the class that BuildGrid uses
sys.exit(cli())
