"""The text of the headers and sources of classes."""

from typing import Dict, List, Optional, Sequence, Tuple

from . import piece
from .draws import Draws
from .plan import SUFFIX, Class, Plan
from .weights import MADE_OF, USES, Weight


def system_lines(names: Sequence[str]) -> List[str]:
	return ["#include <%s>" % name for name in names]


def class_names(unit: Class) -> Dict[str, str]:
	return {"class": "class_%d" % unit.number, "name": unit.c_name}


def c_functions(plan: Plan) -> Tuple[str, ...]:
	"""The functions that a class shows to the other language."""
	return ("value",) if plan.weight == "light" else ("leaf", "value")


# ---- Headers


def header_text(plan: Plan, unit: Class) -> str:
	weight = MADE_OF.get((unit.language, plan.weight))
	draws = Draws(plan.seed, unit.lib, unit.number, 1)
	names = class_names(unit)
	pieces = [piece.load("%s/%s.h" % (unit.language, name)) for name in header_pieces(unit, weight, draws)]
	body = "\n".join(piece.fill(text, names, draws) for text in pieces)
	system = "\n".join(system_lines(weight.header_system)) + "\n" if weight else ""

	mixed = plan.language == "both"
	if unit.language == "c":
		body = c_body(system, body, mixed)
	else:
		body = cxx_body(system, body, unit, c_functions(plan) if mixed else ())
	guard = unit.c_name.upper() + "_H"
	return "#ifndef %s\n#define %s\n\n%s\n#endif\n" % (guard, guard, body)


def header_pieces(unit: Class, weight: Optional[Weight], draws: Draws) -> List[str]:
	"""The names of what a header is made of."""
	if weight is None:
		return ["light"]
	chosen = draws.sample(len(weight.extras), draws.between(*weight.extras_drawn))
	extras = ["extras/" + weight.extras[i] for i in sorted(chosen)]
	return ["interface"] + extras + ["class"] * (unit.language == "c++")


def common_text(plan: Plan, lib: int) -> str:
	"""The header that all sources of a library include first."""
	weight = MADE_OF.get((plan.language, plan.weight))
	names = sorted({*weight.header_system, *weight.system}) if weight else []
	lines = system_lines(names) + ['#include "class_%d.h"' % number for number in range(plan.common)]
	guard = "LIB_%d_COMMON_H" % lib
	return "#ifndef %s\n#define %s\n\n%s\n\n#endif\n" % (guard, guard, "\n".join(lines))


def c_body(system: str, body: str, mixed: bool) -> str:
	parts = [system] if system else []
	parts.append(with_c_linkage("\n%s" % body) if mixed else body)
	return "\n".join(parts)


def cxx_body(system: str, body: str, unit: Class, functions: Sequence[str]) -> str:
	"""The inside of a C++ header; with `functions`, one that C can include as well, and then sees just those."""
	parts = [system] if system else []
	parts.append("namespace lib_%d {\n\n%s\n}\n" % (unit.lib, body))
	text = "\n".join(parts)
	if not functions:
		return text
	declared = "\n".join("unsigned %s_%s(void);" % (unit.c_name, function) for function in functions)
	return "#ifdef __cplusplus\n%s#endif\n\n%s" % (text, with_c_linkage(declared))


def with_c_linkage(functions: str) -> str:
	return piece.fill(piece.load("c/linkage.h"), {"functions": functions})


# ---- Sources


def source_text(plan: Plan, unit: Class) -> str:
	draws = Draws(plan.seed, unit.lib, unit.number, 2)
	internal, external = plan.includes(unit)
	lines = ['#include "common.h"'] * bool(plan.common) + include_lines(unit, internal, external)

	weight = MADE_OF.get((unit.language, plan.weight))
	if weight is None:
		body = piece.fill(source_piece(unit, "light"), class_names(unit), draws)
	else:
		system, steps = source_steps(weight, draws)
		lines += system_lines(sorted({*weight.source_system, *system}))
		steps += use_steps(unit, weight, internal + external, draws)
		body = source_body(unit, steps, draws)

	if unit.language == "c":
		return "%s\n\n%s" % ("\n".join(lines), body)
	if plan.language == "both":
		body += "\n" + c_view_definitions(unit, c_functions(plan))
	return "%s\n\nnamespace lib_%d {\n\n%s\n}\n" % ("\n".join(lines), unit.lib, body)


def include_lines(unit: Class, internal: Sequence[Class], external: Sequence[Class]) -> List[str]:
	lines = ['#include "class_%d.h"' % unit.number]
	lines += ['#include "class_%d.h"' % other.number for other in internal]
	return lines + ["#include <%s.h>" % other.stem for other in external]


def source_piece(unit: Class, name: str) -> str:
	return piece.load("%s/%s%s" % (unit.language, name, SUFFIX[unit.language]))


Step = Tuple[str, str]  # the name of its piece, and of the other class that it uses, if it does


def source_steps(weight: Weight, draws: Draws) -> Tuple[List[str], List[Step]]:
	"""The further system headers that a source includes, and its steps."""
	chosen = draws.sample(len(weight.system), draws.between(*weight.system_drawn))
	system = [weight.system[i] for i in chosen]
	steps = [weight.steps[draws.below(len(weight.steps))] for _ in range(draws.between(*weight.steps_drawn))]
	names = ["system/" + name for name in system] + ["steps/" + name for name in steps]
	return system, [(name, "") for name in names]


def use_steps(unit: Class, weight: Weight, others: Sequence[Class], draws: Draws) -> List[Step]:
	"""A step for each class that a source uses of those it includes, and how that class is called there."""
	steps = []
	most = min(draws.between(*weight.uses_drawn), len(others))
	for place in draws.sample(len(others), most):
		other = others[place]
		uses = USES[unit.language, other.language]
		use = "uses_of_%s/%s" % (other.language, uses[draws.below(len(uses))])
		both_cxx = (unit.language, other.language) == ("c++", "c++")
		steps.append((use, other.cxx_name if both_cxx else other.c_name))
	return steps


def source_body(unit: Class, steps: Sequence[Step], draws: Draws) -> str:
	"""The functions of one source: the steps, the class, and the value that all steps go into."""
	names = class_names(unit)
	filled = []
	for number, (name, other) in enumerate(steps):
		step_names = {**names, "step": "step_%d" % number, "other": other}
		filled.append(piece.fill(source_piece(unit, name), step_names, draws))
	calls = "".join("\tsum = step_%d(sum);\n" % number for number in range(len(steps)))
	own = piece.fill(source_piece(unit, "class"), names, draws)
	if unit.language == "c":
		value = "unsigned %s_value(void)\n{\n\tunsigned sum = %s_leaf();\n" % (unit.c_name, unit.c_name)
		functions = "\n".join([*filled, own])
	else:
		value = "unsigned class_%d::value() const\n{\n\tunsigned sum = total();\n" % unit.number
		functions = "namespace {\n\n%s\n}\n\n%s" % ("\n".join(filled), own)
	return "%s\n%s%s\treturn sum;\n}\n" % (functions, value, calls)


def c_view_definitions(unit: Class, functions: Sequence[str]) -> str:
	line = 'extern "C" unsigned %s_%s(void) { return class_%d().%s(); }\n'
	return "".join(line % (unit.c_name, function, unit.number, function) for function in functions)
