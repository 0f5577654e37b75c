"""
Builds real projects with the stock tools, with ccache and with ours, for ``realbuilds.py``.

``project`` knows the projects and how they are built, ``contender`` the caches, and ``trial`` what is done with each.
"""
