"""
The page of a timeline: one file, with all that it needs.

Its script and style are texts in Python files, since a Waf that was bundled with our tools has no other files.
"""

from . import page_style, page_tables, page_view

# the page loads nothing, and tells the browser to forbid it
HEAD = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; \
script-src 'unsafe-inline'; img-src data:">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>Timeline</title>
<style>
"""

BODY = """\
</style>
</head>
<body>
<header>
<h1 id="title">Timeline</h1>
<p id="about"></p>
<label id="builds-label" hidden>Build <select id="builds"></select></label>
</header>
<main>
<section aria-label="Summary"><dl id="summary"></dl></section>
<section aria-label="Lanes over time">
<div class="bar">
<label class="grow"><span>Filter</span> <input id="filter" type="search" autocomplete="off" spellcheck="false"
 placeholder="target, file, kind of task"></label>
<output id="matches" for="filter"></output>
<label><span>Colors</span> <select id="colors"><option value="kind">what became of it</option>
<option value="way">how it was started</option><option value="what">kind of task</option></select></label>
<label><input id="chain-on" type="checkbox"> longest chain</label>
<span class="buttons" role="group" aria-label="Zoom">
<button id="out" type="button" aria-label="Zoom out">&minus;</button>
<button id="in" type="button" aria-label="Zoom in">+</button>
<button id="left" type="button" aria-label="Earlier">&larr;</button>
<button id="right" type="button" aria-label="Later">&rarr;</button>
<button id="fit" type="button">All</button></span>
</div>
<ul id="legend"></ul>
<div id="frame"><canvas id="lanes" tabindex="0" role="img" aria-describedby="keys"></canvas>
<div id="tip" role="status" aria-live="polite" hidden></div></div>
<p id="keys">Wheel or <kbd>+</kbd> <kbd>-</kbd>: zoom. Drag or <kbd>&larr;</kbd> <kbd>&rarr;</kbd>: move. Shift and
drag: zoom to what is marked. <kbd>n</kbd> <kbd>p</kbd>: next and previous task. <kbd>0</kbd>: all.</p>
</section>
<div class="columns">
<section><h2>Longest chain</h2><p id="chain-words"></p><div class="scroll"><table id="chain"></table></div></section>
<section><h2>Idle slots, and why</h2>
<p id="idle-words"></p><div class="scroll"><table id="idle"></table></div></section>
<section><h2>Longest commands</h2>
<p id="longest-words"></p><div class="scroll"><table id="longest"></table></div></section>
<section><h2>Waf's own thread</h2><p id="main-words"></p><div class="scroll"><table id="main"></table></div></section>
</div>
</main>
<script type="application/json" id="data">"""

FOOT = """\
</script>
</body>
</html>
"""


def make_page(data: str) -> str:
	"""The text of the page that shows this JSON."""
	# only these could end the script
	safe = data.replace("</", "<\\/").replace("<!--", "<\\u0021--")
	parts = (HEAD, page_style.STYLE, BODY, safe, "</script>\n<script>\n", page_view.SCRIPT, page_tables.SCRIPT, FOOT)
	return "".join(parts)
