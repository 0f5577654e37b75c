"""Figures as a page of HTML that needs no other file. Pure."""

import os
from html import escape
from typing import Dict, List, Sequence

from .courses import TITLES
from .figures import MEASURES, Figures, Group, Who
from .plot import Style, is_drawn, plot, styles_of
from .project import HERE
from .sheet import HEAD, LEGEND, WORDS, about, cells, facts

PAGES = os.path.join(HERE, "pages")
SECTION = "<section><h2>%s</h2>\n<p class=soft>%s.%s</p>\n%s\n<div class=plots>\n%s\n</div>\n%s</section>"
HOW = (
	"Both axes are logarithmic. A dot is the median of all runs, its line reaches from the least to the most, the box "
	"between the quartiles. Point at a dot, or reach it with the tab key, for its numbers; a click on a name hides it."
)


def page_of(figures: Figures, title: str = "Comparison") -> str:
	parts = ["<h1>%s</h1>" % escape(title)]
	parts += ["<p class=warning role=alert>%s</p>" % escape(warning) for warning in figures.warnings]
	parts.append("<p>%s</p>" % escape(summary(figures)))
	parts.append("<p class=soft>%s</p>" % escape(HOW))
	styles = styles_of(lanes_of(figures.groups))
	parts += [section(group, styles) for group in figures.groups] or ["<p>Nothing was measured.</p>"]
	parts.append("<h2>How to read it</h2>\n<ul>%s</ul>" % items(LEGEND))
	if figures.left_out:
		parts.append("<h2>Left out</h2>\n<ul>%s</ul>" % items(figures.left_out))
	parts.append("<h2>Machine, programs, commands</h2>\n<dl>")
	for name, text in facts(figures):
		shown = "<code>%s</code>" if name == "command" else "%s"
		parts.append("<dt>%s</dt><dd>%s</dd>" % (escape(name), shown % escape(text)))
	parts.append("</dl>")
	return FRAME % (escape(title), load("compare.css"), "\n".join(parts), load("compare.js"))


FRAME = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>%s</title>
<style>
%s</style>
</head>
<body>
%s
<div id="tip" role="status" hidden></div>
<script>
%s</script>
</body>
</html>
"""


def load(name: str) -> str:
	with open(os.path.join(PAGES, name), encoding="utf-8") as f:
		return f.read()


def lanes_of(groups: Sequence[Group]) -> List[Who]:
	return list(dict.fromkeys(row.who for group in groups for row in group.rows))


def summary(figures: Figures) -> str:
	runs = sum(row.spreads["wall"].count for group in figures.groups for row in group.rows)
	machine = figures.ledger.machine
	works = dict.fromkeys(about(group.work) for group in figures.groups)
	return "%d runs on %s, %s cores. %s." % (runs, machine["processor"], machine["cores"], ". ".join(works))


def items(lines: Sequence[str]) -> str:
	return "".join("<li>%s</li>" % escape(line) for line in lines)


def section(group: Group, styles: Dict[Who, Style]) -> str:
	"""One group: its plots, and its table below."""
	figures = []
	for measure, words, unit in MEASURES:
		drawn = plot(group, measure, unit, styles)
		if drawn:
			heading = "%s, %s" % (escape(words), escape(unit))
			figures.append("<figure><h3>%s</h3>\n%s%s</figure>" % (heading, drawn, caption(group, measure)))
	title = "%s work: %s" % (group.work, group.title)
	against = " Ratios are to %s." % group.base if group.base else ""
	names = legend(lanes_of([group]), styles)
	return SECTION % (
		escape(title),
		TITLES[group.scenario].capitalize(),
		escape(against),
		names,
		"\n".join(figures),
		table(group),
	)


def caption(group: Group, measure: str) -> str:
	"""The lanes that have no points in a plot, with the reason."""
	lacking = dict.fromkeys(row.who.text for row in group.rows if measure in row.spreads and not is_drawn(row, measure))
	if measure != "peak" or not lacking:
		return ""
	return "<figcaption>Not drawn, as a daemon runs the compilers: %s.</figcaption>" % escape(", ".join(lacking))


def legend(lanes: Sequence[Who], styles: Dict[Who, Style]) -> str:
	buttons = []
	for who in lanes:
		sample = '<svg viewBox="0 0 34 12" aria-hidden="true"><g class="%s"><polyline points="0,6 34,6"/>' % (
			"lane " + styles[who].classes
		)
		sample += '<circle class="dot" cx="17" cy="6" r="3.5"/></g></svg>'
		text = escape(who.text)
		buttons.append('<button type="button" aria-pressed="true" data-lane="%s">%s%s</button>' % (text, sample, text))
	return "<div class=legend>%s</div>" % "".join(buttons)


def table(group: Group) -> str:
	kind = [' class="word"' if n in WORDS else "" for n in range(len(HEAD))]
	lines = ["<div class=table tabindex=0><table><thead><tr>%s</tr></thead><tbody>" % row_of("th", HEAD, kind)]
	before = 0
	for row in group.rows:
		start = '<tr class="first">' if row.tasks != before else "<tr>"
		lines.append("%s%s</tr>" % (start, row_of("td", cells(row, group.base), kind)))
		before = row.tasks
	return "\n".join([*lines, "</tbody></table></div>"])


def row_of(tag: str, texts: Sequence[str], kinds: Sequence[str]) -> str:
	return "".join("<%s%s>%s</%s>" % (tag, kind, escape(text), tag) for kind, text in zip(kinds, texts))
