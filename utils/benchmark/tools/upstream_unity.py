"""
A tool for Waf that is loaded in options and has builds load Waf's own ``unity``.

Under its short name ours would be found, so it is loaded from where it lies. As in ``cached_builds``, the projects that
are measured load nothing in ``build``.
"""

import importlib.util
import os

import waflib
from waflib import Build

path = os.path.join(os.path.dirname(waflib.__file__), "extras", "unity.py")
spec = importlib.util.spec_from_file_location("upstream_unity_itself", path)
upstream = importlib.util.module_from_spec(spec)
spec.loader.exec_module(upstream)


def options(opt) -> None:
	upstream.options(opt)

	class UnityBuild(Build.BuildContext):
		cmd = "build"

		def execute_build(self) -> None:
			upstream.build(self)
			super().execute_build()
