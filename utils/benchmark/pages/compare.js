"use strict";
const tip = document.getElementById("tip");

function tell(point) {
	tip.textContent = point.getAttribute("aria-label");
	tip.hidden = false;
	const dot = point.querySelector(".dot").getBoundingClientRect();
	const own = tip.getBoundingClientRect();
	const left = dot.left + dot.width / 2 - own.width / 2;
	tip.style.left = Math.max(6, Math.min(left, document.documentElement.clientWidth - own.width - 6)) + "px";
	tip.style.top = (dot.top - own.height - 8 > 0 ? dot.top - own.height - 8 : dot.bottom + 8) + "px";
}

function hush() { tip.hidden = true; }

for (const point of document.querySelectorAll(".point")) {
	point.addEventListener("pointerenter", () => tell(point));
	point.addEventListener("pointerleave", hush);
	point.addEventListener("focus", () => tell(point));
	point.addEventListener("blur", hush);
}
addEventListener("scroll", hush, { passive: true });
addEventListener("keydown", (event) => { if (event.key === "Escape") hush(); });

for (const button of document.querySelectorAll(".legend button")) {
	button.addEventListener("click", () => {
		const shown = button.getAttribute("aria-pressed") !== "true";
		button.setAttribute("aria-pressed", shown);
		const section = button.closest("section");
		for (const lane of section.querySelectorAll(".lane"))
			if (lane.dataset.lane === button.dataset.lane) lane.classList.toggle("hidden", !shown);
	});
}
