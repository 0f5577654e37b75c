"""The script of a timeline's page, first part: the data and the lanes."""

SCRIPT = r"""
"use strict";
const $ = id => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const GUTTER = 64, AXIS = 22, STRIP = 40, CURVE = 46, LEAST = 20;

function seconds(micros) {
	const size = Math.abs(micros);
	if (size >= 6e7) return Math.floor(micros / 6e7) + " min " + (micros % 6e7 / 1e6).toFixed(0) + " s";
	if (size >= 1e7) return (micros / 1e6).toFixed(1) + " s";
	if (size >= 1e6) return (micros / 1e6).toFixed(2) + " s";
	if (size >= 1e4) return (micros / 1e3).toFixed(0) + " ms";
	if (size >= 1e3) return (micros / 1e3).toFixed(1) + " ms";
	return micros.toFixed(0) + " µs";
}

function unpack(build) {
	const n = build.rows, from = build.columns, to = {n};
	for (const name of Object.keys(from)) {
		const column = from[name];
		to[name] = Array.isArray(column) ? Float64Array.from(column) : new Float64Array(n).fill(column);
	}
	let at = build.begun;
	for (let i = 0; i < n; i++) at = to.start[i] += at;
	to.end = to.start.map((start, i) => start + to.length[i]);
	to.owned = to.owner.map((back, i) => back ? i - back : -1);
	to.blockedBy = to.blocker.map((back, i) => back ? i - back : -1);
	to.isThere = to.way.map(way => way === 3 ? 1 : 0);
	to.isTask = to.owner.map(back => back === 0 ? 1 : 0);
	to.match = new Uint8Array(n).fill(1);
	to.onChain = new Uint8Array(n);
	for (const row of build.chain) to.onChain[row] = 1;
	to.lanes = build.lanes.map(() => []);
	for (let i = 0; i < n; i++) to.lanes[to.lane[i]].push(i);
	to.nameOf = i => i < 0 ? "" : build.folders[to.folder[i]] + build.names[i];
	return to;
}

const page = {build: null, rows: null, from: 0, to: 1, selected: -1, filter: "", colors: "kind", chain: false};
let palette = {}, width = 0, height = 0, laneHeight = 16, gutter = GUTTER;

function readPalette() {
	const style = getComputedStyle(document.documentElement);
	const of = name => style.getPropertyValue(name).trim();
	palette = {
		ground: of("--ground"), ink: of("--ink"), soft: of("--soft"), line: of("--line"), dim: of("--dim"),
		panel: of("--panel"), mark: of("--mark"), accent: of("--accent"),
		kinds: data.kinds.map((_, i) => of("--k" + i)), reasons: data.reasons.map((_, i) => of("--r" + i)),
	};
	palette.cluster = of("--k10");
	palette.ways = [palette.kinds[6], palette.kinds[3], palette.kinds[4], palette.cluster];
}

function color(i) {
	const rows = page.rows;
	if (page.colors === "way") return rows.kind[i] === 0 ? palette.kinds[0] : palette.ways[rows.way[i]];
	if (page.colors === "what") return "hsl(" + (rows.what[i] * 137.5 % 360) + " 58% 52%)";
	return palette.kinds[rows.kind[i]];
}

/* Black on light colors, white on others. */
function inkOn(style) {
	const parts = style.match(/^#(..)(..)(..)$/);
	if (!parts) return "#ffffff";
	const [r, g, b] = parts.slice(1).map(part => parseInt(part, 16));
	return .3 * r + .59 * g + .11 * b > 140 ? "#10161d" : "#ffffff";
}

// ---- positions

const inner = () => Math.max(1, width - gutter);
const xOf = at => gutter + (at - page.from) / (page.to - page.from) * inner();
const timeOf = x => page.from + (x - gutter) / inner() * (page.to - page.from);
const yOf = lane => AXIS + lane * laneHeight;
const lanesEnd = () => yOf(page.build.lanes.length);

function clamp() {
	const all = page.build.ended - page.build.begun || 1;
	const span = Math.min(all, Math.max(LEAST, page.to - page.from));
	page.from = Math.min(Math.max(page.build.begun, page.from), page.build.ended - span);
	page.to = page.from + span;
}

function show(from, to) {
	page.from = from;
	page.to = to;
	clamp();
	draw();
}

function zoom(factor, at) {
	const middle = at === undefined ? (page.from + page.to) / 2 : at;
	const span = Math.max(LEAST, (page.to - page.from) * factor);
	const share = (middle - page.from) / (page.to - page.from);
	show(middle - share * span, middle + (1 - share) * span);
}

const move = share => show(page.from + share * (page.to - page.from), page.to + share * (page.to - page.from));
const fit = () => show(page.build.begun, page.build.ended);

function reveal(row) {
	const rows = page.rows, length = Math.max(rows.length[row], LEAST);
	show(rows.start[row] - 2 * length, rows.end[row] + 2 * length);
	select(row);
	$("frame").scrollIntoView({block: "nearest"});
}

/* The first row of a lane that ends after a time. Rows of a lane do not overlap, except hits, which take no time. */
function firstAfter(list, at) {
	let low = 0, high = list.length;
	while (low < high) {
		const middle = (low + high) >> 1;
		if (page.rows.end[list[middle]] < at) low = middle + 1; else high = middle;
	}
	return low;
}

function rowAt(x, y) {
	const lane = Math.floor((y - AXIS) / laneHeight);
	if (x < gutter || lane < 0 || lane >= page.build.lanes.length) return -1;
	const list = page.rows.lanes[lane], near = (page.to - page.from) / inner() * 3, at = timeOf(x);
	let best = -1, distance = Infinity;
	for (let i = firstAfter(list, at - near); i < list.length && page.rows.start[list[i]] <= at + near; i++) {
		const row = list[i];
		const away = Math.max(page.rows.start[row] - at, at - page.rows.end[row], 0);
		if (away < distance || (away === distance && page.rows.match[row] > page.rows.match[best])) {
			best = row;
			distance = away;
		}
	}
	return best;
}

// ---- drawing

const canvas = $("lanes"), pen = canvas.getContext("2d");

function measure() {
	width = canvas.clientWidth || 300;
	gutter = width < 560 ? 48 : GUTTER;
	const lanes = Math.max(1, page.build.lanes.length);
	laneHeight = Math.max(3, Math.min(22, Math.floor(360 / lanes)));
	height = AXIS + lanes * laneHeight + STRIP + 2 * CURVE + 14;
	const ratio = window.devicePixelRatio || 1;
	canvas.style.height = height + "px";
	canvas.width = Math.round(width * ratio);
	canvas.height = Math.round(height * ratio);
	pen.setTransform(ratio, 0, 0, ratio, 0, 0);
}

let asked = 0;
function draw() {
	if (!asked) asked = requestAnimationFrame(() => { asked = 0; drawNow(); });
}

function drawNow() {
	pen.fillStyle = palette.ground;
	pen.fillRect(0, 0, width, height);
	drawAxis();
	page.build.lanes.forEach((_, lane) => drawLane(lane));
	if (page.chain) drawChain();
	if (page.selected >= 0) outline(page.selected, palette.mark, 2);
	drawNames();
	drawIdle(lanesEnd() + 6);
	drawCurves(lanesEnd() + STRIP + 8);
	if (page.marked) {
		pen.fillStyle = palette.accent;
		pen.globalAlpha = .2;
		pen.fillRect(page.marked[0], 0, page.marked[1] - page.marked[0], height);
		pen.globalAlpha = 1;
	}
	page.drawn = (page.drawn || 0) + 1;
}

function drawAxis() {
	const span = page.to - page.from;
	let step = Math.pow(10, Math.floor(Math.log10(span / Math.max(2, inner() / 110))));
	for (const factor of [1, 2, 5, 10]) {
		if (span / (step * factor) <= inner() / 80) { step *= factor; break; }
	}
	pen.font = "11px system-ui, sans-serif";
	pen.textBaseline = "middle";
	pen.textAlign = "center";
	const origin = page.build.begun;
	for (let at = Math.ceil((page.from - origin) / step) * step; at + origin <= page.to; at += step) {
		const x = xOf(at + origin);
		pen.fillStyle = palette.line;
		pen.fillRect(Math.round(x), AXIS - 4, 1, height);
		pen.fillStyle = palette.soft;
		if (x > gutter + 14 && x < width - 20) pen.fillText(at ? seconds(at) : "0", x, AXIS / 2);
	}
}

/* Many short rows within one pixel are drawn as one, in the color of the longest. */
function drawLane(lane) {
	const rows = page.rows, list = rows.lanes[lane], y = yOf(lane), gap = laneHeight > 6 ? 1 : 0;
	const high = laneHeight - gap, scale = inner() / (page.to - page.from);
	let pixel = -1, best = -1, bestMatch = 0;
	const flush = () => {
		if (best < 0) return;
		pen.fillStyle = bestMatch ? color(best) : palette.dim;
		pen.fillRect(pixel, y, 1, high);
		best = -1;
	};
	for (let i = firstAfter(list, page.from); i < list.length; i++) {
		const row = list[i];
		if (rows.start[row] > page.to) break;
		const left = gutter + (rows.start[row] - page.from) * scale, wide = rows.length[row] * scale;
		if (wide < 1.5) {
			const at = Math.floor(left);
			if (at !== pixel) { flush(); pixel = at; }
			const match = rows.match[row];
			if (best < 0 || match > bestMatch || (match === bestMatch && rows.length[row] > rows.length[best])) {
				best = row;
				bestMatch = match;
			}
			continue;
		}
		flush();
		drawRow(row, left, wide, y, high);
	}
	flush();
}

function drawRow(row, left, wide, y, high) {
	const rows = page.rows, x = Math.max(gutter, left), end = Math.min(width, left + wide), matches = rows.match[row];
	pen.fillStyle = matches ? color(row) : palette.dim;
	pen.fillRect(x, y, Math.max(1, end - x - (wide > 4 ? 1 : 0)), high);
	if (!matches) return;
	if (rows.way[row] === 1 && high > 8 && wide > 4) {
		/* a parked program has a lighter edge */
		pen.fillStyle = "rgba(255, 255, 255, .55)";
		pen.fillRect(x, y, Math.max(1, end - x - 1), 2);
	}
	if (high >= 11 && end - x > 34) {
		const text = page.build.names[row], room = Math.floor((end - x - 8) / 6);
		pen.fillStyle = inkOn(color(row));
		pen.textAlign = "left";
		pen.fillText(text.length > room ? text.slice(0, Math.max(1, room - 1)) + "…" : text, x + 4, y + high / 2 + 1);
	}
}

function outline(row, style, thick) {
	const rows = page.rows, left = Math.max(gutter, xOf(rows.start[row])), right = Math.min(width, xOf(rows.end[row]));
	if (right < gutter || left > width) return;
	pen.strokeStyle = style;
	pen.lineWidth = thick;
	pen.strokeRect(left, yOf(rows.lane[row]) + .5, Math.max(2, right - left), laneHeight - 1);
}

function drawChain() {
	const rows = page.rows, middle = row => yOf(rows.lane[row]) + laneHeight / 2;
	let last = -1;
	pen.save();
	pen.beginPath();
	pen.rect(gutter, 0, width, lanesEnd());
	pen.clip();
	for (const row of page.build.chain) {
		outline(row, palette.mark, 2);
		if (last >= 0) {
			pen.beginPath();
			pen.moveTo(xOf(rows.end[last]), middle(last));
			pen.lineTo(xOf(rows.start[row]), middle(row));
			pen.stroke();
		}
		last = row;
	}
	pen.restore();
}

function drawNames() {
	pen.fillStyle = palette.ground;
	pen.fillRect(0, AXIS, gutter - 2, height);
	pen.fillStyle = palette.soft;
	pen.textAlign = "left";
	const every = Math.max(1, Math.ceil(12 / laneHeight));
	page.build.lanes.forEach(([kind, number], lane) => {
		if (lane % every) return;
		const name = kind === "cache" ? kind : (gutter < GUTTER ? kind.slice(0, 4) : kind) + " " + number;
		pen.fillText(name, 4, yOf(lane) + laneHeight / 2);
	});
	pen.fillText("idle", 4, lanesEnd() + 6 + STRIP / 2 - 4);
}

function drawIdle(top) {
	const high = STRIP - 12, jobs = page.build.jobs || 1;
	pen.fillStyle = palette.panel;
	pen.fillRect(gutter, top, inner(), high);
	let active = [];
	for (const [start, length, slots, reason] of page.build.idle) {
		if (start > page.to) break;
		if (start + length < page.from) continue;
		const x = Math.max(gutter, xOf(start)), part = high * Math.min(1, slots / jobs);
		/* the lowest level that is free of rows which still run; times are rounded */
		active = active.filter(each => each.until > start + 1).sort((a, b) => a.below - b.below);
		let below = 0;
		for (const each of active) {
			if (each.below - below >= part - .01) break;
			below = each.below + each.part;
		}
		below = Math.max(0, Math.min(below, high - part));
		active.push({until: start + length, below, part});
		pen.fillStyle = palette.reasons[reason];
		pen.fillRect(x, top + high - below - part, Math.max(.6, Math.min(width, xOf(start + length)) - x), part);
	}
}

/* How many tasks ran in each pixel, on average: on the cluster, or here. */
function countRunning(isThere) {
	const pixels = inner(), scale = pixels / (page.to - page.from), rows = page.rows;
	const part = new Float64Array(pixels + 2), steps = new Float64Array(pixels + 2);
	for (let i = 0; i < rows.n; i++) {
		if (!rows.isTask[i] || !rows.match[i] || rows.end[i] <= page.from || isThere !== rows.isThere[i]) continue;
		if (rows.start[i] >= page.to) break;
		const left = Math.max(0, (rows.start[i] - page.from) * scale);
		const right = Math.min(pixels, (rows.end[i] - page.from) * scale);
		const a = Math.floor(left), b = Math.floor(right);
		if (a === b) { part[a] += right - left; continue; }
		part[a] += a + 1 - left;
		part[b] += right - b;
		steps[a + 1]++;
		steps[b]--;
	}
	for (let x = 0, full = 0; x < pixels; x++) part[x] += full += steps[x];
	return part;
}

function curve(points, most, top, style, filled) {
	pen.beginPath();
	points.forEach(([x, value], i) => {
		const y = top + CURVE - 10 - value / (most || 1) * (CURVE - 14);
		if (i) pen.lineTo(x, y); else pen.moveTo(x, y);
	});
	pen.lineWidth = 1.3;
	pen.strokeStyle = style;
	if (filled && points.length) {
		pen.lineTo(points[points.length - 1][0], top + CURVE - 10);
		pen.lineTo(points[0][0], top + CURVE - 10);
		pen.globalAlpha = .35;
		pen.fillStyle = style;
		pen.fill();
		pen.globalAlpha = 1;
	} else pen.stroke();
}

function drawCurves(top) {
	const count = isThere => [...countRunning(isThere).slice(0, inner())].map((value, x) => [gutter + x, value]);
	const hasCluster = page.rows.isThere.includes(1);
	const samples = page.build.samples, xs = samples.map(sample => xOf(sample[0])), jobs = page.build.jobs || 1;
	const most = Math.max(1, ...samples.map(sample => sample[1]));
	pen.save();
	pen.beginPath();
	pen.rect(gutter, top, inner(), 2 * CURVE);
	pen.clip();
	curve(count(0), jobs, top, palette.kinds[3], true);
	if (hasCluster) curve(count(1), jobs, top, palette.cluster, false);
	curve(samples.map((sample, i) => [xs[i], Math.min(jobs, sample[3])]), jobs, top, palette.kinds[1], false);
	curve(samples.map((sample, i) => [xs[i], sample[1]]), most, top + CURVE, palette.kinds[2], true);
	curve(samples.map((sample, i) => [xs[i], sample[2]]), most, top + CURVE, palette.kinds[0], false);
	pen.restore();
	pen.fillStyle = palette.soft;
	pen.textAlign = "left";
	pen.fillText("running", 4, top + CURVE / 2);
	pen.fillText("memory", 4, top + CURVE * 1.5);
	pen.fillStyle = palette.ink;
	const lines = hasCluster ? "here and on a cluster (line), processors that are busy (line)" :
		"processors that are busy (line)";
	pen.fillText("tasks that run" + (hasCluster ? " " : ", ") + lines + ", of " + jobs, gutter + 4, top + 6);
	const size = (most / 1024).toFixed(1) + " GiB";
	pen.fillText("memory of the machine and of Waf (line), up to " + size, gutter + 4, top + CURVE + 6);
}
"""
