"""The text of the program that --program adds, which calls every class."""

from .plan import Plan


def program_part_text(plan: Plan, lib: int) -> str:
	"""The part of the program that calls every class of one library."""
	units = plan.library(lib)
	lines = ["#include <%s.h>" % unit.stem for unit in units]
	lines += ["", declared_sum(plan, lib) + ";", "", declared_sum(plan, lib), "{", "\tunsigned sum = %d;" % lib]
	for unit in units:
		call = unit.c_name + "_value()" if unit.language == "c" else unit.cxx_name + "().value()"
		lines.append("\tsum = sum * 31u + %s;" % call)
	return "\n".join(lines + ["\treturn sum;", "}", ""])


def declared_sum(plan: Plan, lib: int) -> str:
	return "unsigned lib_%d_sum(%s)" % (lib, "void" if plan.language == "c" else "")


def program_main_text(plan: Plan) -> str:
	"""The main function: prints one checksum over every class of every library."""
	lines = ["#include <stdio.h>", ""]
	lines += [declared_sum(plan, lib) + ";" for lib in range(plan.libs)]
	lines += ["", "int main(%s)" % ("void" if plan.language == "c" else ""), "{", "\tunsigned sum = 0;"]
	lines += ["\tsum = sum * 31u + lib_%d_sum();" % lib for lib in range(plan.libs)]
	return "\n".join(lines + ['\tprintf("%08x\\n", sum);', "\treturn 0;", "}", ""])
