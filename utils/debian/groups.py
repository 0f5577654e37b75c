"""What is tried in another system: groups of our tests, by the files that hold them."""

from typing import Dict, NamedTuple, Sequence, Tuple


class Group(NamedTuple):
	"""Tests of one subject. `few` is an expression of pytest's for those that say most in little time."""

	files: Tuple[str, ...]
	few: str = ""
	pythons: Tuple[str, ...] = ("cpython",)


GROUPS: Dict[str, Group] = {
	"parking": Group(
		("test_parked_compilers.py", "test_parked_libcs.py", "test_courses.py"),
		"test_parked_libcs or test_courses.py and (test_options or test_one_shape)",
	),
	"observing": Group(
		(
			"test_courses_observed.py",
			"test_cache_parked.py",
			"test_cache_facts.py",
			"test_cache_links.py",
			"test_cache_traced.py",
		),
		"observed or test_cache_parked",
	),
	"caching": Group(
		("test_cache.py", "test_cache_checkouts.py", "test_cache_results.py", "test_wafcc.py", "test_waf_wafcc.py"),
		"test_cache.py or test_assembler",
	),
	"prefork": Group(
		("test_prefork_builds.py", "test_prefork_commands.py", "test_prefork_options.py", "test_prefork_accidents.py"),
		"test_prefork_builds",
		("cpython", "pypy"),
	),
	"unity": Group(("test_unity.py", "test_unity_names.py"), "test_unity_names", ("cpython", "pypy")),
	"soundness": Group(("test_waf_soundness.py", "test_cache_audit.py"), "test_cache_audit"),
}


def choose_groups(names: Sequence[str]) -> Dict[str, Group]:
	return {name: GROUPS[name] for name in (names or GROUPS)}
