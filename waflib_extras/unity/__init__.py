"""
Compiles groups of C or C++ files together, if the result is the same as that of compiling each file alone.

To enable it for all targets::

	def options(opt):
		opt.load('compiler_cxx unity')
	def build(bld):
		bld.load('unity')

or for some of them, when ``unity`` was loaded in ``options``::

	def build(bld):
		bld(features='cxx cxxprogram unity', source='main.cpp ...', ...)

or, without a change of ``build``, on the command line: ``waf build --unity=on``.

The attributes of a task generator are ``unity_size`` (most files in a group; 0 or 1 for none), ``unity_exclude``
(names, patterns or nodes that are compiled alone), ``unity_group`` (``'folder'``, or a function of a node: only files
of a group are compiled together), ``unity_before`` and ``unity_after`` (code around each include), ``unity_unique_id``
(the name of a macro that is another identifier in each file). A file that says ``unity: alone`` in a comment is
compiled alone.

Options: ``--batchsize``, ``--unity=on|off|auto``, ``--unity-still``, ``--unity-explain``. ``docs/unity.md`` has the
details.

To troubleshoot, ``waf --unity-explain`` tells for each target what is compiled together and why files are compiled
alone. ``waf --zones=unity`` tells it as it happens. ``waf --unity=off`` compiles each file alone.
"""

if "." in __name__:
	from .tool import build, configure, options
else:
	# Waf has loaded this folder without its package, with tooldir=
	__import__("waflib_extras_alone").stand_in(__name__, __path__)

__all__ = ["build", "configure", "options"]
