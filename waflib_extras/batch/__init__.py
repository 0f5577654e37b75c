"""
Compiles many sources in one call of their compiler, with the outputs, messages and rebuilds of one call for each.

::

	def options(opt):
		opt.load('compiler_c batch')

	def build(bld):
		bld.load('batch')                               # all targets …
		bld.stlib(source=..., features='batch')         # … or, without that line, this one
		bld.stlib(source=..., batch_size=20)            # the same with at most so many at once; 0 keeps out

Each task keeps its own signature and dependencies, and is shown when it is done. Tasks that may run at the same time,
and whose commands differ only in source and output, share a call. A source whose output a call did not make is compiled
again alone, so that an error concerns that file only.

C and C++ with gcc, clang and MSVC's options need nothing else. Any other task class joins by saying how several of its
tasks become one command::

	class shader(Task.Task):
		run_str = '${SHADERC} -o ${TGT} ${SRC}'
		batch_run_str = '${SHADERC} -d ${tsk.batch_folder()} ${SRC}'
		def batch_names(self):                          # in that folder, one for each output
			return [node.name for node in self.outputs]

Option: ``--batch=N``, at most N sources in a call, for all targets; 0 turns it off. It pays for compilers that are slow
to start, and hardly for gcc and clang. A clang that ``prefork`` parks compiles each source alone. ``docs/batch.md`` has
the details and the figures.

To troubleshoot, ``waf --zones=batch`` tells of each call, and in the end how many tasks were left alone and why.
"""

if "." in __name__:
	from .tool import build, options
else:
	# Waf has loaded this folder without its package, with tooldir=
	__import__("waflib_extras_alone").stand_in(__name__, __path__)

__all__ = ["build", "options"]
