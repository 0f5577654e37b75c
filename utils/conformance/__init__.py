"""
Builds Waf's own projects with stock Waf and with ours, and compares the two builds.

``projects`` lists the projects, ``twins`` builds twice at one path and tells what differs, and ``workbench`` gives each
build its environment. ``start.py`` and ``site`` are what these builds begin with. ``cached`` has each task class cached
and tells what came of each command, and ``report`` is what ``classes.py`` prints of that.
"""
