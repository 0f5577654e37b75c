"""
Builds real projects with the stock tools, with ccache and with ours, for ``realbuilds.py``.

``project`` knows the projects and how they are built, ``contender`` the caches, ``course`` what is done with each, and
``tables`` tells what came of it.
"""
