// Draws a number over the last minutes as a line.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 240;
const HEIGHT = 40;
export const WINDOW = 300_000; // milliseconds
const LEAST = 60_000; // a shorter history does not fill the width
const GAP = 3_000; // no page was open meanwhile

// Points are [milliseconds, value or null]. The line is broken where a point is missing.
export function draw(svg, points, most, label) {
	svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
	svg.setAttribute("preserveAspectRatio", "none");
	svg.setAttribute("aria-label", label);
	const end = points.length ? points[points.length - 1][0] : 0;
	const shown = Math.min(WINDOW, Math.max(LEAST, end - (points[0]?.[0] ?? end)));
	const top = Math.max(most, 1e-9);
	let path = "";
	let before = null;
	for (const [at, value] of points) {
		if (value == null || end - at > shown) {
			before = null;
			continue;
		}
		const x = (WIDTH * (1 - (end - at) / shown)).toFixed(1);
		const y = (HEIGHT - 1 - (HEIGHT - 2) * Math.min(1, value / top)).toFixed(1);
		path += `${before != null && at - before < GAP ? "L" : "M"}${x} ${y}`;
		before = at;
	}
	let line = svg.firstElementChild;
	if (!line) {
		line = document.createElementNS(SVG, "path");
		svg.append(line);
	}
	line.setAttribute("d", path);
}
