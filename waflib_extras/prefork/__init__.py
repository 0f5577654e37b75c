"""
Runs the commands of a build through the engine, ``wafd``, instead of starting each from Python.

::

	def options(opt):
		opt.load('prefork')

That is all: tasks, ``cmd_and_log``, configuration tests and ``multicheck`` go through the engine, which is started when
it is needed and ends by itself. A command that cannot be sent to it (with a ``preexec_fn``, or a terminal as standard
input) runs Waf's own way, as all commands do where there is no engine. ``docs/prefork.md`` has the details.

Options: ``--no-prefork``, ``--pin-process``, ``--own-slots``, ``--threads``, ``--prefork-transport=unix|tcp``;
``--quiet`` (``docs/terminal.md``) and ``--why`` (``docs/why.md``); those of ``docs/neighbor.md`` are ``--nice``,
``--sched``, ``--processors``, ``--load``, ``--jobserver`` and ``--no-memory-brake``.

Environment variables: ``WAF_NO_PREFORK`` (Waf's own: nothing is replaced), ``WAF_PREFORK_TRANSPORT``, ``WAFD`` (the
engine's program), ``WAFD_RUNTIME_DIR`` (the folder of its socket),
``WAFD_PATIENCE`` (how many seconds a build waits for it).

To troubleshoot, ``waf --zones=prefork`` shows each command with its time and memory, and in the end how many ran Waf's
own way and why. ``wafd status`` shows the engine, and ``WAF_NO_PREFORK=1 waf`` builds without it.
"""

if "." in __name__:
	from .tool import Prefork, build, configure, install, options, setup
else:
	# Waf has loaded this folder without its package, with tooldir=
	__import__("waflib_extras_alone").stand_in(__name__, __path__)

__all__ = ["Prefork", "build", "configure", "install", "options", "setup"]
