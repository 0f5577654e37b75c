"""
A tool for Waf that is loaded in options and has builds load ``wafcache``.

Waf's own ``wafcache`` is made to be loaded by a project's ``build``, and the projects that are measured name only what
is loaded in ``options``. A class that says ``cmd = "build"`` is Waf's own way to extend a command.
"""

from waflib import Build


def options(opt) -> None:
	class CachedBuild(Build.BuildContext):
		cmd = "build"

		def execute_build(self) -> None:
			self.load("wafcache")
			super().execute_build()
