"use strict";
const NEAR = 10, FAR = 40, MANY = 4;
const tip = document.getElementById("tip");

function center(point) {
	const dot = point.querySelector(".dot").getBoundingClientRect();
	return { x: dot.left + dot.width / 2, y: dot.top + dot.height / 2 };
}

function tell(points) {
	for (const told of document.querySelectorAll(".told")) told.classList.remove("told");
	for (const point of points) point.classList.add("told");
	tip.textContent = points.map((point) => point.getAttribute("aria-label")).join("\n\n");
	tip.hidden = !points.length;
	if (tip.hidden) return;
	const dot = center(points[0]), own = tip.getBoundingClientRect();
	tip.style.left = Math.max(6, Math.min(dot.x - own.width / 2, document.documentElement.clientWidth - own.width - 6)) + "px";
	tip.style.top = (dot.y - own.height - 12 > 0 ? dot.y - own.height - 12 : dot.y + 12) + "px";
}

// What is nearest to the pointer, and whatever lies so close to that as to be hidden by it.
function find(event) {
	const found = [];
	for (const point of event.currentTarget.querySelectorAll(".lane:not(.hidden) .point")) {
		const { x, y } = center(point);
		found.push({ point, far: Math.hypot(x - event.clientX, y - event.clientY) });
	}
	found.sort((one, other) => one.far - other.far);
	if (!found.length || found[0].far > FAR) return tell([]);
	tell(found.filter(({ far }) => far <= found[0].far + NEAR).slice(0, MANY).map(({ point }) => point));
}

for (const plot of document.querySelectorAll("figure svg")) {
	plot.addEventListener("pointermove", find);
	plot.addEventListener("pointerdown", find);
	plot.addEventListener("pointerleave", () => tell([]));
}
for (const point of document.querySelectorAll(".point")) {
	point.addEventListener("focus", () => tell([point]));
	point.addEventListener("blur", () => tell([]));
}
addEventListener("scroll", () => { if (!document.activeElement.matches(".point")) tell([]); }, { passive: true });
addEventListener("keydown", (event) => { if (event.key === "Escape") tell([]); });

for (const button of document.querySelectorAll(".legend button")) {
	button.addEventListener("click", () => {
		const shown = button.getAttribute("aria-pressed") !== "true";
		button.setAttribute("aria-pressed", shown);
		for (const lane of button.closest("section").querySelectorAll(".lane"))
			if (lane.dataset.lane === button.dataset.lane) lane.classList.toggle("hidden", !shown);
	});
}
