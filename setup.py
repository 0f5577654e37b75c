"""
Package the Python tools together with the engine, as one wheel per platform that serves every Python.

The engine is a program, not an extension module, so the wheel depends on the platform alone: py3-none-<platform>.
Without cargo, and elsewhere than on Linux, the package is made without the engine: its tools load, say so once, and
leave Waf as it is. With a Rust that is too old for it, only the program that speaks with clusters is left out.
"""

import glob
import importlib.machinery
import importlib.util
import os
import runpy
import shutil
import sys
import tempfile

from setuptools import find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools_rust import RustBin

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = ("wafd", "wafcc", "waf")
CLUSTER = ("wafd-cluster",)


def find_obstacle() -> str:
	"""Say why the engine cannot be built here, or nothing when it can."""
	if not sys.platform.startswith("linux"):
		return "it runs on Linux only"
	if not shutil.which(os.environ.get("CARGO", "cargo")):
		return "cargo is missing: install Rust and install waflib-extras again"
	return ""


def list_programs():
	"""Our programs, by package of Rust. The first call of cargo builds all of them."""
	loader = importlib.machinery.SourceFileLoader("bootstrap", os.path.join(HERE, "waf"))
	bootstrap = importlib.util.module_from_spec(importlib.util.spec_from_loader("bootstrap", loader))
	loader.exec_module(bootstrap)
	cargo = os.environ.get("CARGO", "cargo")
	options = ["--locked", *bootstrap.name_packages(cargo)]
	programs = {"engine/Cargo.toml": PROGRAMS}
	obstacle = bootstrap.find_cluster_obstacle(cargo)
	if obstacle:
		print("waflib-extras: %s" % obstacle, file=sys.stderr)
	else:
		programs["engine/cluster/Cargo.toml"] = CLUSTER
	return [RustBin({x: x for x in names}, path=path, args=options, debug=False) for path, names in programs.items()]


class PlatformWheel(bdist_wheel):
	"""A wheel for any Python 3; for one platform when the engine is in it, else for all."""

	def get_tag(self):
		platform = super().get_tag()[2]
		return ("py3", "none", platform if self.distribution.rust_extensions else "any")


obstacle = find_obstacle()
if obstacle:
	print("waflib-extras: the engine is left out: %s" % obstacle, file=sys.stderr)

with open(os.path.join(HERE, "README.md"), encoding="utf-8") as readme:
	description = readme.read()

# a new folder each time: setuptools packs all files that an earlier build has left in its own
with tempfile.TemporaryDirectory() as workspace:
	setup(
		name="waflib-extras",
		version=runpy.run_path(os.path.join(HERE, "waflib_extras", "version.py"))["VERSION"],
		description="Extras for the Waf build system that remove what makes builds slow",
		long_description=description,
		long_description_content_type="text/markdown",
		license="BSD-3-Clause",
		license_files=["LICENSE"],
		author="The waflib-extras authors",
		python_requires=">=3.8",
		install_requires=["waflib>=2.0"],
		packages=find_packages(include=["waflib_extras", "waflib_extras.*"]),
		# where the programs of a prefix look; below a virtual environment only man finds its pages
		data_files=[
			("share/man/man1", ["docs/man/wafd.1", "docs/man/wafcc.1"]),
			("share/man/man7", ["docs/man/waf-extras.7"]),
			("share/bash-completion/completions", sorted(glob.glob("engine/completions/bash/*"))),
			("share/zsh/site-functions", sorted(glob.glob("engine/completions/zsh/*"))),
			("share/fish/vendor_completions.d", sorted(glob.glob("engine/completions/fish/*"))),
		],
		entry_points={
			"console_scripts": [
				# the engine's own waf calls this one
				"%s = waflib_extras.launcher:main" % ("waf" if obstacle else "waf-python"),
				"wafx = waflib_extras.wafx:main",
				"waf-extras = waflib_extras.wafx:main",
			]
		},
		rust_extensions=[] if obstacle else list_programs(),
		cmdclass={"bdist_wheel": PlatformWheel},
		options={"build": {"build_base": workspace}},
		zip_safe=False,
		classifiers=[
			"Development Status :: 4 - Beta",
			"Environment :: Console",
			"Intended Audience :: Developers",
			"Operating System :: POSIX :: Linux",
			"Programming Language :: Python :: 3",
			"Programming Language :: Python :: Implementation :: CPython",
			"Programming Language :: Python :: Implementation :: PyPy",
			"Programming Language :: Rust",
			"Topic :: Software Development :: Build Tools",
		],
	)
