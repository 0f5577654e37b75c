"""The script of a timeline's page, second part: mouse, touch and keys, words and tables."""

SCRIPT = r"""
// ---- words

function make(tag, text, attributes) {
	const element = document.createElement(tag);
	if (text !== undefined) element.textContent = text;
	return Object.assign(element, attributes || {});
}

const share = (part, whole) => whole ? (100 * part / whole).toFixed(part / whole < .1 ? 1 : 0) + " %" : "-";

function describe(i) {
	const rows = page.rows, build = page.build, lines = [];
	const what = [build.classes[rows.what[i]], build.targets[rows.target[i]]].filter(Boolean).join(" of ");
	lines.push(what + ": " + data.kinds[rows.kind[i]]);
	if (data.ways[rows.way[i]]) lines.push(data.ways[rows.way[i]]);
	lines.push((rows.kind[i] === 0 ? "answered " : "took " + seconds(rows.length[i]) + ", from ") +
		seconds(rows.start[i] - build.begun) + " on");
	if (rows.waited[i] > 0) {
		const after = rows.blockedBy[i] >= 0 ? " after " + rows.nameOf(rows.blockedBy[i]) : "";
		const queued = rows.queued[i] ? ", " + seconds(rows.queued[i]) + " of it in the engine" : "";
		lines.push("waited " + seconds(rows.waited[i]) + after + queued);
	}
	if (rows.paused[i]) lines.push(seconds(rows.paused[i]) + " of that it waited for a slot");
	if (rows.owned[i] >= 0) lines.push("run by " + rows.nameOf(rows.owned[i]));
	if (build.words[rows.words[i]]) lines.push("why: " + build.words[rows.words[i]]);
	if (build.words[rows.place[i]]) lines.push("where: " + build.words[rows.place[i]]);
	if (rows.processor[i]) lines.push("processor " + seconds(rows.processor[i]));
	if (rows.peak[i]) lines.push("memory " + (rows.peak[i] / 1024).toFixed(1) + " MiB");
	if (rows.code[i]) lines.push("status " + rows.code[i]);
	if (rows.onChain[i]) lines.push("on the longest chain");
	return lines;
}

function tell(i, x, y) {
	const tip = $("tip");
	tip.hidden = i < 0;
	if (i < 0) return;
	tip.replaceChildren(make("b", page.rows.nameOf(i)), ...describe(i).map(line => make("div", line)));
	tip.style.left = Math.max(4, Math.min(x + 14, width - tip.offsetWidth - 4)) + "px";
	tip.style.top = Math.max(4, y + 16 + tip.offsetHeight > height ? y - tip.offsetHeight - 10 : y + 16) + "px";
}

function tellIdle(x, y) {
	const at = timeOf(x), found = page.build.idle.filter(each => each[0] <= at && at < each[0] + each[1]);
	const tip = $("tip");
	if (!found.length) return tell(-1);
	tip.hidden = false;
	tip.replaceChildren(...found.map(([, length, slots, reason, who]) => make("div", +slots.toFixed(2) + " idle for " +
		seconds(length) + ": " + data.reasons[reason] + (who >= 0 ? ": " + page.rows.nameOf(who) : ""))));
	tip.style.left = Math.max(4, Math.min(x + 14, width - tip.offsetWidth - 4)) + "px";
	tip.style.top = Math.max(4, y - tip.offsetHeight - 10) + "px";
}

function select(row) {
	page.selected = row;
	if (row >= 0) {
		const rows = page.rows, x = xOf(Math.min(Math.max(rows.start[row], page.from), page.to));
		tell(row, Math.min(x, width - 60), yOf(rows.lane[row]) + laneHeight / 2);
	} else tell(-1);
	draw();
}

// ---- mouse, touch, keys

const fingers = new Map();
let pinch = null, dragged = false;
const place = event => {
	const box = canvas.getBoundingClientRect();
	return [event.clientX - box.left, event.clientY - box.top];
};

function point(x, y) {
	const top = lanesEnd() + 6;
	if (y >= top && y < top + STRIP && x >= gutter) return tellIdle(x, y);
	tell(rowAt(x, y), x, y);
}

function spread() {
	const [a, b] = [...fingers.values()];
	return {middle: (a[0] + b[0]) / 2, wide: Math.max(10, Math.abs(a[0] - b[0]))};
}

canvas.addEventListener("wheel", event => {
	event.preventDefault();
	const [x] = place(event), turned = event.deltaY * (event.deltaMode ? 20 : 1);
	if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) move((event.deltaX || turned) / 800);
	else zoom(Math.exp(Math.max(-1, Math.min(1, turned / 300))), timeOf(Math.max(gutter, x)));
}, {passive: false});

canvas.addEventListener("pointerdown", event => {
	const [x, y] = place(event);
	fingers.set(event.pointerId, [x, y]);
	dragged = false;
	if (fingers.size === 2) {
		const now = spread();
		pinch = {at: timeOf(now.middle), wide: now.wide, span: page.to - page.from};
	} else if (event.shiftKey) page.marked = [x, x];
	canvas.setPointerCapture(event.pointerId);
});

canvas.addEventListener("pointermove", event => {
	const [x, y] = place(event), before = fingers.get(event.pointerId);
	if (!before) return point(x, y);
	fingers.set(event.pointerId, [x, y]);
	if (fingers.size === 2 && pinch) {
		const now = spread(), span = pinch.span * pinch.wide / now.wide;
		dragged = true;
		const from = pinch.at - (now.middle - gutter) / inner() * span;
		return show(from, from + span);
	}
	if (page.marked) {
		page.marked[1] = x;
		return draw();
	}
	if (Math.abs(x - before[0]) > 0) {
		dragged = true;
		canvas.classList.add("dragged");
		tell(-1);
		move((before[0] - x) / inner());
	}
});

function lift(event) {
	const [x, y] = place(event), held = fingers.delete(event.pointerId);
	canvas.classList.remove("dragged");
	if (fingers.size < 2) pinch = null;
	if (page.marked) {
		const [a, b] = page.marked.map(each => timeOf(Math.max(gutter, each))).sort((one, other) => one - other);
		page.marked = null;
		if (xOf(b) - xOf(a) > 4) return show(a, b);
		return draw();
	}
	if (held && !dragged && event.type === "pointerup") {
		page.selected = rowAt(x, y);
		point(x, y);
		draw();
	}
}
canvas.addEventListener("pointerup", lift);
canvas.addEventListener("pointercancel", lift);
canvas.addEventListener("pointerleave", event => { if (event.pointerType === "mouse" && page.selected < 0) tell(-1); });
canvas.addEventListener("dblclick", event => { const row = rowAt(...place(event)); if (row >= 0) reveal(row); });

function step(by) {
	const rows = page.rows;
	let row = page.selected < 0 && by < 0 ? rows.n : page.selected;
	do row += by; while (row >= 0 && row < rows.n && !rows.match[row]);
	if (row < 0 || row >= rows.n) return;
	if (rows.start[row] < page.from || rows.end[row] > page.to) {
		const half = Math.max(page.to - page.from, 2 * rows.length[row]) / 2;
		const middle = rows.start[row] + rows.length[row] / 2;
		show(middle - half, middle + half);
	}
	select(row);
}

const KEYS = {
	"+": () => zoom(.6), "=": () => zoom(.6), "-": () => zoom(1 / .6), "_": () => zoom(1 / .6), "0": fit, Home: fit,
	ArrowUp: () => zoom(.6), ArrowDown: () => zoom(1 / .6), ArrowLeft: () => move(-.2), ArrowRight: () => move(.2),
	n: () => step(1), p: () => step(-1), Escape: () => select(-1),
};
canvas.addEventListener("keydown", event => {
	const act = KEYS[event.key];
	if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
	event.preventDefault();
	act();
});
for (const [id, act] of Object.entries({
	in: KEYS["+"], out: KEYS["-"], left: KEYS.ArrowLeft, right: KEYS.ArrowRight, fit,
})) $(id).addEventListener("click", act);

// ---- filter and colors

function filter(text) {
	const rows = page.rows, build = page.build;
	const wanted = text.toLowerCase().split(/\s+/).filter(Boolean);
	let count = 0, spent = 0, all = 0;
	page.filter = text;
	for (let i = 0; i < rows.n; i++) {
		let found = 1;
		if (wanted.length) {
			const hay = [rows.nameOf(i), build.targets[rows.target[i]], build.classes[rows.what[i]],
				data.kinds[rows.kind[i]], data.ways[rows.way[i]]].join(" ").toLowerCase();
			found = wanted.every(word => hay.includes(word)) ? 1 : 0;
		}
		rows.match[i] = found;
		if (!rows.isTask[i]) continue;
		all += rows.length[i];
		if (found) { count++; spent += rows.length[i]; }
	}
	$("matches").textContent = count.toLocaleString("en") + (count === 1 ? " task, " : " tasks, ") + seconds(spent) +
		(wanted.length ? " of " + seconds(all) + " (" + share(spent, all) + ")" : "");
	fillLongest();
	draw();
}

let typed = 0;
$("filter").addEventListener("input", event => {
	clearTimeout(typed);
	typed = setTimeout(() => filter(event.target.value), page.rows.n > 20000 ? 150 : 0);
});
$("colors").addEventListener("change", event => { page.colors = event.target.value; fillLegend(); draw(); });
$("chain-on").addEventListener("change", event => { page.chain = event.target.checked; draw(); });

function fillLegend() {
	const rows = page.rows, sums = new Map();
	const names = {kind: i => data.kinds[rows.kind[i]], what: i => page.build.classes[rows.what[i]] || "task",
		way: i => rows.kind[i] === 0 ? "hit" : data.ways[rows.way[i]] || "in Waf"}[page.colors];
	for (let i = 0; i < rows.n; i++) {
		const name = names(i), sum = sums.get(name) || {count: 0, spent: 0, row: i};
		sum.count++;
		sum.spent += rows.length[i];
		sums.set(name, sum);
	}
	const sorted = [...sums].sort((a, b) => b[1].spent - a[1].spent).slice(0, 14);
	$("legend").replaceChildren(...sorted.map(([name, sum]) => {
		const item = make("li"), dot = make("i");
		dot.style.background = color(sum.row);
		item.append(dot, name + ": " + sum.count.toLocaleString("en") + (sum.spent ? ", " + seconds(sum.spent) : ""));
		return item;
	}));
}

// ---- tables

function fill(id, heads, lines) {
	const head = make("tr");
	head.append(...heads.map(text => make("th", text, {scope: "col"})));
	const body = lines.map(cells => {
		const line = make("tr");
		line.append(...cells.map(cell => {
			const place = make("td");
			place.append(cell);
			return place;
		}));
		return line;
	});
	$(id).replaceChildren(head, ...body);
}

function link(row) {
	const button = make("button", page.rows.nameOf(row), {type: "button"});
	button.addEventListener("click", () => reveal(row));
	return button;
}

function dotted(style, ...content) {
	const place = make("span"), dot = make("i");
	dot.style.background = style;
	place.append(dot, ...content);
	return place;
}

function fillLongest() {
	const rows = page.rows, numbers = [];
	for (let i = 0; i < rows.n; i++) if (rows.match[i] && rows.length[i] > 0) numbers.push(i);
	numbers.sort((a, b) => rows.length[b] - rows.length[a]);
	const all = rows.length.reduce((sum, each, i) => sum + (rows.isTask[i] ? each : 0), 0);
	$("longest-words").textContent = numbers.length > 50 ? "50 of " + numbers.length.toLocaleString("en") : "";
	fill("longest", ["what", "took", "share", "memory"], numbers.slice(0, 50).map(i => [
		dotted(color(i), link(i)), seconds(rows.length[i]), share(rows.length[i], all),
		rows.peak[i] ? (rows.peak[i] / 1024).toFixed(0) + " MiB" : ""]));
}

function fillChain() {
	const rows = page.rows, chain = page.build.chain, wall = page.build.ended - page.build.begun;
	const length = chain.reduce((sum, row) => sum + rows.length[row] - rows.paused[row], 0);
	page.chainLength = length;
	$("chain-words").textContent = !chain.length ? "Nothing ran." : chain.length.toLocaleString("en") +
		" tasks, each waiting for the one before: " + seconds(length) + ", " + share(length, wall) +
		" of this build. No number of slots makes it shorter.";
	let last = -1;
	fill("chain", ["what", "took", "share", "began after"], chain.slice(0, 300).map(row => {
		const gap = last < 0 ? rows.start[row] - page.build.begun : rows.start[row] - rows.end[last];
		last = row;
		const took = rows.length[row] - rows.paused[row];
		return [dotted(color(row), link(row)), seconds(took), share(took, length), seconds(gap)];
	}));
}

function fillIdle() {
	const build = page.build, all = build.reasons.reduce((sum, each) => sum + each[2], 0);
	const whole = build.jobs * (build.ended - build.begun);
	$("idle-words").textContent = "Of " + build.jobs + " slots, " + seconds(all) + " were idle: " + share(all, whole) +
		" of all slots' time." + (build.thinned ? " Drawn are means of short times." : "");
	fill("idle", ["why", "idle", "share"], build.reasons.map(([reason, who, spent]) => [
		dotted(palette.reasons[reason], data.reasons[reason], ...(who >= 0 ? [": ", link(who)] : [])),
		seconds(spent), share(spent, all)]));
}

function fillMain() {
	const build = page.build, seen = build.doings.reduce((sum, each) => sum + each[1], 0);
	const sums = build.main.map((spent, doing) => [data.main[doing], spent]).filter(each => each[1]);
	const lines = sums.sort((a, b) => b[1] - a[1]).map(([name, spent]) =>
		[name, seconds(spent), share(spent, build.ended - build.begun)]);
	$("main-words").textContent = seen ? "Below the line: what it was seen to do in " + seen + " looks." : "";
	fill("main", ["what", "time", "share"], lines.concat(
		build.doings.map(([name, count]) => ["seen: " + name, String(count), share(count, seen)])));
}

function fillSummary() {
	const build = page.build, rows = page.rows, counts = data.kinds.map(() => 0);
	let processor = 0, tasks = 0, first = Infinity, last = 0;
	for (let i = 0; i < rows.n; i++) {
		processor += rows.processor[i];
		if (!rows.isTask[i]) continue;
		tasks++;
		counts[rows.kind[i]]++;
		first = Math.min(first, rows.start[i]);
		last = Math.max(last, rows.end[i]);
	}
	const wall = build.ended - build.begun, asked = counts[0] + counts[1], span = Math.max(0, last - first);
	const parked = rows.way.reduce((sum, way) => sum + (way === 1), 0);
	const ran = rows.way.reduce((sum, way) => sum + (way === 1 || way === 2), 0);
	const there = rows.length.filter((_, i) => rows.isThere[i] && rows.kind[i] !== 9);
	const work = build.busy / (build.jobs || 1), bound = Math.max(page.chainLength, work);
	const cards = [["took", seconds(wall), build.outcome], ["tasks that ran", tasks.toLocaleString("en"),
		"of " + build.total.toLocaleString("en")],
		["processor time", seconds(processor + build.processor), seconds(build.processor) + " of it Waf's"],
		["at once, on average", (span ? build.busy / span : 0).toFixed(2),
			"of " + build.jobs + " slots, while tasks ran"],
		["cannot take less than", seconds(bound), page.chainLength >= work
			? "its longest chain" : "all work, divided by the slots"],
		["longest chain", seconds(page.chainLength), share(page.chainLength, wall) + " of this build"]];
	const uncached = counts[2] ? ", " + counts[2] + " not cacheable" : "";
	if (asked + counts[2]) cards.push(["hits", share(counts[0], asked), counts[0] + " of " + asked + uncached]);
	if (ran) cards.push(["parked", share(parked, ran), parked + " of " + ran + " commands"]);
	if (there.length) cards.push(["on a cluster", there.length.toLocaleString("en"),
		seconds(there.reduce((sum, length) => sum + length, 0)) + " there"]);
	if (counts[7]) cards.push(["failed", String(counts[7]), "tasks"]);
	$("summary").replaceChildren(...cards.map(([name, value, more]) => {
		const card = make("div"), described = make("dd", value);
		described.append(make("small", more));
		card.append(make("dt", name), described);
		return card;
	}));
	canvas.setAttribute("aria-label", tasks + " tasks in " + build.lanes.length + " lanes over " + seconds(wall) +
		"; " + build.outcome);
}

// ---- start

function choose(number) {
	const build = data.builds[number];
	Object.assign(page, {build, rows: unpack(build), selected: -1, from: build.begun, to: build.ended});
	tell(-1);
	document.title = "waf " + build.name + ": " + data.about.project;
	const state = make("span", build.outcome, {className: build.outcome === "succeeded" ? "" : "failed"});
	$("title").replaceChildren("waf " + build.name + " in " + data.about.project + ": ", state);
	const about = data.about;
	$("about").textContent = [about.made, "Waf " + about.waf, about.python, "waf " + about.arguments].join(" · ");
	readPalette();
	measure();
	clamp();
	fillChain();
	fillSummary();
	fillLegend();
	fillIdle();
	fillMain();
	filter($("filter").value);
	drawNow();
}

$("builds").append(...data.builds.map((build, number) => make("option", build.name, {value: number})));
$("builds-label").hidden = data.builds.length < 2;
$("builds").addEventListener("change", event => choose(Number(event.target.value)));
new ResizeObserver(() => { measure(); draw(); }).observe($("frame"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readPalette(); draw(); });
choose(data.builds.length - 1);
$("builds").value = data.builds.length - 1;
"""
