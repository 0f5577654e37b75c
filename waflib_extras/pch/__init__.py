"""
Precompiles headers that many sources of a target read: those that the project names, or those that pay.

::

	def options(opt):
		opt.load('compiler_cxx pch')
	def configure(conf):
		conf.load('compiler_cxx pch')
	def build(bld):
		bld(features='cxx pch', name='heavy', target='heavy', headers='a.h b.h')
		bld.program(source='main.cpp more.cpp', target='app', use='heavy')

	# or
		bld(features='cxx cxxprogram pch', source='main.cpp more.cpp', target='app', headers='a.h b.h')

This is what the tool of that name in Waf's own extras takes. ``conf.load`` is only needed for headers that the project
names. ``waf configure --without-pch`` does without them.

``waf pch`` tells for each target which headers would pay, and writes them down. With ``waf build --pch=auto``, they
are used, and no line of the wscript changes. With ``--pch=off`` nothing is precompiled. ``docs/pch.md`` has the
details.
"""

if "." in __name__:
	from .tool import build, configure, options
else:
	# Waf has loaded this folder without its package, with tooldir=
	__import__("waflib_extras_alone").stand_in(__name__, __path__)

__all__ = ["build", "configure", "options"]
