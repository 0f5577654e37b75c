// The page: receives the news, shows them, and handles the keys.

import { List, setBar, setFacts, setText } from "./list.js";
import * as show from "./show.js";
import { draw, WINDOW } from "./spark.js";
import { count, duration, memory, share, size, waits } from "./text.js";

const AGAIN = 1000; // milliseconds before a lost connection is tried again
const RATE = 20; // the number of samples for a hit rate
const SECTIONS = ["builds", "slots", "cluster", "misses", "cache", "parked", "tiers", "engine"];

const $ = (id) => document.getElementById(id);
const lists = Object.fromEntries(SECTIONS.slice(0, -1).map((name) => [name, new List($(name).querySelector("ul"))]));
const places = new show.Slots();
let samples = [];
let news = null;
let paused = false;
let hearing = null;

// ---- receiving

async function hear() {
	const abort = new AbortController();
	hearing = abort;
	while (hearing === abort) {
		try {
			const answer = await fetch("news", { signal: abort.signal, cache: "no-store" });
			if (answer.status === 403) {
				return stop("This address is not valid any more: the dashboard was started again. Open what it has printed.");
			}
			if (answer.status === 503) {
				return stop("Too many pages of this dashboard are open: close some, and load this one again.");
			}
			if (!answer.ok) {
				throw new Error(`status ${answer.status}`);
			}
			if (await read(answer.body)) {
				return stop("The dashboard has ended. Start it again with wafd dashboard, and open the address that it prints.");
			}
		} catch (error) {
			if (abort.signal.aborted) {
				return;
			}
		}
		tell("lost", "connection lost", "The dashboard does not answer: it was ended, or the connection to it is cut. Trying again.");
		await new Promise((resolve) => setTimeout(resolve, AGAIN));
	}
}

function stop(words) {
	hearing = null;
	tell("lost", "ended", words);
}

// Reads lines of JSON until the end. True if the dashboard says that it ends.
async function read(body) {
	const reader = body.pipeThrough(new TextDecoderStream()).getReader();
	let text = "";
	for (;;) {
		const { value, done } = await reader.read();
		if (done) {
			return false;
		}
		text += value;
		const lines = text.split("\n");
		text = lines.pop();
		for (const line of lines) {
			const told = JSON.parse(line);
			if (told.kind === "over") {
				return true;
			}
			take(told);
		}
	}
}

function take(told) {
	if (told.kind === "past") {
		samples = told.samples;
		return;
	}
	// The latest sample of the history comes again with the news.
	if (!samples.length || samples[samples.length - 1][0] < told.sample[0]) {
		samples.push(told.sample);
	}
	samples = samples.filter((sample) => told.at - sample[0] <= WINDOW);
	news = told;
	if (!paused) {
		showAll();
	}
}

// ---- showing

const STATES = {
	running: ["live", ""],
	absent: ["no engine", "No engine runs. Any build starts one, and so does wafd start; this page waits for it."],
	silent: ["silent", ""],
	refused: ["refused", ""],
};

function tell(state, words, trouble) {
	$("state").dataset.state = state;
	setText($("state"), words);
	setText($("trouble"), trouble);
	$("trouble").hidden = !trouble;
	document.body.classList.toggle("stale", state === "lost");
}

function showAll() {
	const { report, engine, machine, team, at } = news;
	const [words, trouble] = STATES[engine.state] ?? [engine.state, engine.words];
	tell(engine.state, paused ? "paused" : words, trouble || engine.words);
	setText($("engine-name"), report ? `${report.version} · ${report.pid} · ${duration(report.uptime_s)}` : "");
	document.title = report ? `${report.slots.running}/${report.slots.capacity} · wafd` : "wafd: no engine";
	showTiles(report, machine);
	const slots = report?.slots;
	const busy = slots ? `${count(slots.running)} of ${count(slots.capacity)} in use, ${waits(slots.waiting)}` : "";
	const nothing = report ? "" : "no engine runs";
	showList("builds", show.builds(report), "", nothing || "no build runs");
	showList("slots", show.slots(places.place(report), report), busy, nothing || "no build has asked for slots");
	showList("cluster", show.cluster(report), show.clusterNote(report), nothing || "none is set: see docs/execution.md");
	showList("misses", show.misses(report, at), "", nothing || "none since the engine started");
	showList("cache", show.cache(report), report ? show.cacheNote(report) : "", nothing || "nothing was counted");
	showList("parked", show.parked(report), show.parkedNote(report), nothing || "no program was used");
	showList("tiers", show.tiers(report, team), show.tiersNote(report), nothing || "none is set: see docs/tiers.md");
	setFacts($("engine").querySelector("dl"), show.engine(report, machine));
}

const FILTERED = new Set(["builds", "slots", "cluster", "misses", "parked"]);

function showList(name, cards, note, none) {
	const wanted = $("filter").value.trim().toLowerCase();
	const text = (card) => [card.name, card.note, card.code ?? "", ...(card.facts ?? []).flat()].join("\n").toLowerCase();
	const found = wanted && FILTERED.has(name) ? cards.filter((card) => text(card).includes(wanted)) : cards;
	const left = found.length < cards.length ? `${found.length} of ${cards.length} shown` : "";
	setText($(name).querySelector(".note"), [note, left].filter(Boolean).join("; "));
	lists[name].show(found, cards.length ? "nothing that the filter lets through" : none);
}

function showTile(name, value, note, points, most, label) {
	const tile = $(`tile-${name}`);
	setText(tile.querySelector(".value"), value);
	setText(tile.querySelector(".note"), note);
	if (points) {
		draw(tile.querySelector("svg"), points, most, label);
	}
}

// The hit rate between two samples. Null if there were no requests, or the counts began anew.
function rate(before, now) {
	const [hits, misses] = [now[4] - before[4], now[5] - before[5]];
	const is = now[4] != null && before[4] != null && hits >= 0 && misses >= 0 && hits + misses > 0;
	return is ? { hits, misses, rate: hits / (hits + misses) } : null;
}

function showTiles(report, machine) {
	const slots = report?.slots;
	const running = samples.map((sample) => [sample[0], sample[1]]);
	const capacity = Math.max(1, ...samples.map((sample) => sample[2] ?? 0));
	const used = slots ? `${count(slots.running)} / ${count(slots.capacity)}` : "–";
	showTile("slots", used, slots ? waits(slots.waiting) : "", running, capacity,
		`Slots in use in the last five minutes, at most ${capacity}`);
	const first = samples.find((sample) => sample[4] != null);
	const all = first && rate(first, samples[samples.length - 1]);
	showTile("rate", all ? share(all.hits, all.hits + all.misses) : "–",
		all ? `${count(all.hits)} hits, ${count(all.misses)} misses in 5 min` : "nothing asked in 5 min",
		samples.map((sample, i) => [sample[0], rate(samples[Math.max(0, i - RATE)], sample)?.rate]), 1,
		"Hit rate in the last five minutes");
	const held = samples.map((sample) => [sample[0], sample[6]]);
	const most = Math.max(1, ...held.map(([, kib]) => kib ?? 0));
	const brake = report?.brake?.why ? "brake: fewer commands start; " : "";
	const left = machine?.total_kib ? `${memory(machine.available_kib)} free of the machine` : "";
	showTile("memory", report ? memory(report.memory_kib) : "–", brake + left, held, 1.2 * most,
		`Memory of the engine in the last five minutes, at most ${memory(most)}`);
	const statistics = report?.cache?.statistics;
	const limit = statistics?.limit ? `at most ${size(statistics.limit)}` : "no limit";
	showTile("store", statistics ? size(statistics.bytes) : "–", statistics ? `${count(statistics.entries)} entries, ${limit}` : "");
	setBar($("tile-store").querySelector(".bar"), statistics?.limit ? statistics.bytes / statistics.limit : null);
}

// ---- keys

function pause() {
	paused = !paused;
	$("pause").setAttribute("aria-pressed", String(paused));
	setText($("pause"), paused ? "Go on" : "Pause");
	if (news && hearing) {
		showAll();
	}
}

function onKey(event) {
	const filter = $("filter");
	if (event.altKey || event.ctrlKey || event.metaKey || $("help").open) {
		return;
	}
	if (event.target === filter) {
		if (event.key === "Escape") {
			filter.value = "";
			filter.blur();
			refilter();
		}
		return;
	}
	const section = SECTIONS[Number(event.key) - 1];
	if (section) {
		const target = $(section);
		(target.querySelector('.head[tabindex="0"]') ?? target).focus();
		target.scrollIntoView({ block: "start" });
	} else if (event.key === "/") {
		filter.focus();
		filter.select();
	} else if (event.key === "?") {
		$("help").showModal();
	} else if (event.key === "p") {
		pause();
	} else {
		return;
	}
	event.preventDefault();
}

function refilter() {
	if (news) {
		showAll();
	}
}

document.addEventListener("keydown", onKey);
$("filter").addEventListener("input", refilter);
$("pause").addEventListener("click", pause);
$("keys").addEventListener("click", () => $("help").showModal());
// A hidden page asks for nothing.
document.addEventListener("visibilitychange", () => {
	if (document.hidden) {
		hearing?.abort();
		hearing = null;
	} else if (!hearing) {
		hear();
	}
});
hear();
