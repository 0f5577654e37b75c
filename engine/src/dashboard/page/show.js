// Turns a report into cards and texts. Pure except for the slots, which remember their commands.

import { ago, base, brief, count, duration, line, memory, plural, share, size } from "./text.js";

const sum = (reasons) => Object.values(reasons ?? {}).reduce((all, n) => all + n, 0);
// The most frequent reason comes first.
const most = (reasons) => Object.entries(reasons ?? {}).sort((one, other) => other[1] - one[1]);

export function builds(report) {
	return (report?.sessions ?? []).map((build) => {
		const waits = build.neighbor?.waits_for;
		const facts = [
			["folder", build.name],
			["process", build.pid],
			["succeeded", count(build.succeeded)],
			["of these hits", count(build.hits)],
			["failed", count(build.failed)],
			["connections", count(build.connections)],
			["slots", build.own_slots ? "its own" : "shared with others"],
		];
		if (build.neighbor?.load != null) {
			facts.push(["starts nothing above", `${build.neighbor.load} runnable threads`]);
		}
		if (build.neighbor?.jobserver) {
			const { jobserver, tokens_held: held, tokens_free: free } = build.neighbor;
			facts.push([jobserver, `${held} tokens held, ${free ?? "?"} free`]);
		}
		if (waits) {
			facts.push(["waits for", waits]);
		}
		const done = build.succeeded + build.failed;
		return {
			key: `build ${build.id}`,
			name: base(build.name),
			note: `-j${build.jobs}, ${count(build.running)} running, ${count(build.waiting)} waiting, ${count(done)} done`
				+ (build.failed ? `, ${count(build.failed)} failed` : "") + (waits ? `; waits: ${waits}` : ""),
			side: duration(build.seconds),
			tone: build.failed ? "bad" : waits ? "slow" : "",
			share: build.jobs ? build.running / build.jobs : 0,
			facts,
		};
	}).sort((one, other) => (one.key < other.key ? -1 : 1));
}

// The engine does not number its slots: a command keeps the row in which it is first shown.
export class Slots {
	constructor() {
		this.places = [];
	}

	place(report) {
		const commands = [...(report?.commands ?? [])].sort((one, other) => one.id - other.id);
		const running = new Map(commands.map((command) => [command.id, command]));
		const engine = report?.pid;
		const stays = (command) => command && this.engine === engine && running.has(command.id);
		this.places = this.places.map((command) => (stays(command) ? running.get(command.id) : null));
		this.engine = engine;
		const known = new Set(this.places.filter(Boolean).map((command) => command.id));
		for (const command of commands.filter((command) => !known.has(command.id))) {
			const free = this.places.indexOf(null);
			this.places[free < 0 ? this.places.length : free] = command;
		}
		const capacity = report?.slots?.capacity ?? 0;
		while (this.places.length > capacity && !this.places[this.places.length - 1]) {
			this.places.pop();
		}
		while (this.places.length < capacity) {
			this.places.push(null);
		}
		return this.places;
	}
}

const FREE = 32; // the most free slots that are shown

const GONE = "a build that has gone";

function buildNames(report) {
	return new Map((report?.sessions ?? []).map((build) => [build.id, base(build.name)]));
}

export function slots(places, report) {
	const names = buildNames(report);
	const longest = Math.max(1, ...places.filter(Boolean).map((command) => command.seconds));
	const cards = places.map((command, i) => {
		if (!command) {
			return { key: `slot ${i}`, name: `${i + 1}`, note: "free", tone: "free", share: null };
		}
		const build = names.get(command.session) ?? GONE;
		const known = command.known && (command.known === "uncached" ? "not cached" : command.known);
		const facts = [
			["build", build],
			["folder", command.folder],
			["process", command.pid || "between two parts"],
			["since", duration(command.seconds)],
		];
		if (known) {
			facts.push(["cache", command.why ? `${known}: ${command.why}` : known]);
		}
		return {
			key: `slot ${i}`,
			name: `${i + 1}`,
			note: `${brief(command.argv)} · ${build}`,
			side: duration(command.seconds),
			tone: known === "miss" ? "miss" : "",
			share: command.seconds / longest,
			facts,
			code: line(command.argv),
		};
	});
	return cards.filter((card, i) => card.tone !== "free" || i < FREE);
}

// The cluster itself, the commands that are there, and why others are not.
export function cluster(report) {
	const cluster = report?.cluster;
	if (!cluster) {
		return [];
	}
	const names = buildNames(report);
	const longest = Math.max(1, ...cluster.commands.map((command) => command.seconds));
	const left = cluster.left_alone_s;
	const there = report.cache?.statistics?.remote.clusters?.[cluster.address];
	const facts = [
		["at once", `${count(cluster.there)} of ${count(cluster.jobs)}`],
		["sent", plural(cluster.sent, "command")],
		["run here, too", plural(cluster.raced, "command")],
		["last fault", cluster.fault ?? "none"],
	];
	const state = {
		key: "cluster",
		name: cluster.address,
		note: left == null ? "takes commands" : `left alone${left ? ` for ${duration(left)}` : ", one command tries it"}: ${cluster.fault}`,
		side: `${count(cluster.there)} of ${count(cluster.jobs)}`,
		tone: left == null ? "hit" : "bad",
		share: cluster.jobs ? cluster.there / cluster.jobs : null,
		facts,
	};
	const commands = cluster.commands.map((command) => {
		const build = names.get(command.session) ?? GONE;
		return {
			key: `there ${command.id}`,
			name: "there",
			note: `${brief(command.argv)} · ${build}${command.raced ? " · here, too" : ""}`,
			side: duration(command.seconds),
			tone: "",
			share: command.seconds / longest,
			facts: [
				["build", build],
				["folder", command.folder],
				["there since", duration(command.seconds)],
				["here, too", command.raced ? "yes" : "no"],
			],
			code: line(command.argv),
		};
	});
	const stayed = most(there?.not_executed);
	const all = sum(there?.not_executed) + (there?.executed ?? 0);
	return [state, ...commands, ...stayed.map(([why, n]) => ({
		key: `stayed ${why}`, name: "run here", note: why, side: count(n), tone: "slow", share: all ? n / all : null,
	}))];
}

export function clusterNote(report) {
	const cluster = report?.cluster;
	if (!cluster) {
		return "";
	}
	const there = report.cache?.statistics?.remote.clusters?.[cluster.address];
	const since = there ? `; since counting began, ${count(there.executed)} were compiled there, ${count(sum(there.not_executed))} here` : "";
	return `${count(cluster.there)} of ${count(cluster.jobs)} there; ${count(cluster.sent)} sent, `
		+ `${count(cluster.raced)} of them run here, too${since}`;
}

export function misses(report, at) {
	return (report?.cache?.misses ?? []).map((miss) => {
		const facts = [
			["output", miss.output],
			...miss.why.map((why, i) => [i ? "and" : "why", why]),
			...(miss.more ? [["and", `${count(miss.more)} more`]] : []),
			...(miss.not_stored ? [["not stored", miss.not_stored]] : []),
			["ran in", miss.folder],
		];
		const unstored = miss.not_stored ? `; not stored: ${miss.not_stored}` : "";
		return {
			key: `miss ${miss.output}`,
			name: base(miss.output),
			note: `${miss.known === "uncached" ? "not cached: " : ""}${miss.why.slice(0, 2).join("; ") || "no reason is known"}${unstored}`,
			side: ago(at / 1000 - miss.at),
			tone: miss.known === "uncached" ? "slow" : "miss",
			share: null,
			facts,
			code: miss.argv.length ? line(miss.argv) : null,
		};
	});
}

export function cache(report) {
	const all = report?.cache?.statistics;
	if (!all) {
		return [];
	}
	const asked = all.hits + sum(all.misses);
	const every = asked + sum(all.uncached);
	const card = (kind, tone, of) => ([why, n]) => ({
		key: `${kind} ${why}`,
		name: kind,
		note: why,
		side: `${count(n)} (${share(n, of)})`,
		tone,
		share: of ? n / of : 0,
	});
	const { used, refused } = all.preambles ?? {};
	const plain = ([why, n]) => ({ key: `no preamble ${why}`, name: "no preamble", note: why, side: count(n), tone: "slow", share: null });
	return [
		{ ...card("hit", "hit", asked)(["all is as it was", all.hits]) },
		...most(all.misses).map(card("miss", "miss", asked)),
		...(used ? [card("of these", "hit", sum(all.misses))(["began after their headers", used])] : []),
		...most(all.uncached).map(card("not cached", "slow", every)),
		...most(all.not_stored).map(card("not stored", "slow", sum(all.misses))),
		...most(refused).map(plain),
		...all.differences.map((words, i) => ({ key: `different ${i}`, name: "different", note: words, tone: "bad", share: null })),
	];
}

export function cacheNote(report) {
	const all = report?.cache?.statistics;
	if (!all) {
		return "not asked so far";
	}
	const asked = all.hits + sum(all.misses);
	const waiting = report.cache.flights?.waiting;
	const audits = all.audited || report.cache.audit_percent
		? `; ${count(all.audited)} hits compiled again, ${count(all.different)} different` : "";
	const { limit, count: held, bytes } = report.cache.preambles ?? {};
	const preambles = limit == null ? ""
		: `; ${plural(held, "preamble")} of ${size(bytes)}, about ${duration(all.preambles.saved / 1e6)} saved`;
	return `${share(all.hits, asked)} of ${plural(asked, "request")} since ${since(all.since)} were hits`
		+ `, ${plural(sum(all.uncached), "command")} not cached${audits}${preambles}`
		+ (waiting ? `; ${count(waiting)} wait for one of ${count(report.cache.flights.running)} that run` : "");
}

function since(seconds) {
	return new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ") + " UTC";
}

const TONES = { parked: "hit", refused: "slow" };

export function parked(report) {
	const parking = report?.parking;
	const programs = (parking?.programs ?? []).map((program) => {
		const held = program.parked.reduce((all, way) => all + way.memory_kib, 0);
		const ways = program.parked.map((way) => [
			`process ${way.pid}`,
			memory(way.memory_kib) + (way.variables?.length ? `, for its ${way.variables.join(", ")}` : ""),
		]);
		return {
			key: `program ${program.path}`,
			name: base(program.path),
			note: `${program.state}, ${plural(program.commands, "command")}${held ? `, ${memory(held)}` : ""}`,
			side: program.parked.length > 1 ? `${program.parked.length} ways` : "",
			tone: TONES[program.state] ?? "",
			share: null,
			facts: [["program", program.path], [program.state, program.words], ...ways],
		};
	});
	return [...programs, ...most(parking?.spawned).map(([why, n]) => ({
		key: `spawned ${why}`, name: "spawned", note: why, side: count(n), tone: "", share: null,
	}))];
}

export function parkedNote(report) {
	const parking = report?.parking;
	if (!parking) {
		return "";
	}
	if (!parking.on) {
		return "off";
	}
	const driver = parking.courses?.commands ? `, ${count(parking.courses.commands)} without their driver` : "";
	return `${plural(parking.commands, "command")} ran in parked programs${driver}; they hold ${memory(parking.memory_kib)}`
		+ ` of ${memory(parking.memory_limit_kib)}`;
}

export function tiers(report, team) {
	const remote = report?.cache?.statistics?.remote;
	const cards = (remote?.tiers ?? []).map((tier) => ({
		key: `tier ${tier.name}`,
		name: tier.name,
		note: tier.state,
		tone: tier.asked ? "hit" : "bad",
		share: null,
	}));
	for (const [kind, reasons] of [["error", remote?.errors], ["not uploaded", remote?.uploads_dropped]]) {
		for (const [why, n] of Object.entries(reasons ?? {})) {
			cards.push({ key: `${kind} ${why}`, name: kind, note: why, side: count(n), tone: "bad", share: null });
		}
	}
	return team ? [...cards, teamCard(team)] : cards;
}

export function tiersNote(report) {
	const remote = report?.cache?.statistics?.remote;
	if (!remote?.tiers.length) {
		return "";
	}
	const asked = remote.hits + remote.misses;
	return `${count(remote.hits)} of ${plural(asked, "request")} found there (${share(remote.hits, asked)})`
		+ `, ${plural(remote.uploads, "upload")}; ${size(remote.bytes_in)} in, ${size(remote.bytes_out)} out`;
}

function teamCard(team) {
	const key = `team ${team.name}`;
	if (!team.status) {
		return { key, name: team.name, note: team.words, tone: "bad", share: null };
	}
	const status = team.status;
	const facts = Object.entries(status).map(([name, value]) => [
		name.replaceAll("_", " "),
		typeof value === "object" && value
			? Object.entries(value).filter(([, n]) => n).map(([label, n]) => `${label}: ${count(n)}`).join("; ") || "0"
			: /bytes/.test(name) ? size(value) : count(value),
	]);
	return {
		key,
		name: team.name,
		note: `serves for ${duration(status.uptime_seconds)}, ${plural(status.connections, "connection")}, `
			+ `${plural(status.store_entries, "entry", "entries")} in ${size(status.store_bytes)}`,
		tone: "hit",
		share: status.store_max_bytes ? status.store_bytes / status.store_max_bytes : null,
		facts,
	};
}

export function engine(report, machine) {
	const facts = [];
	if (report) {
		const totals = report.totals;
		facts.push(
			["engine", `wafd ${report.version}, process ${report.pid}${report.leaving ? ", leaving" : ""}`],
			["up for", duration(report.uptime_s)],
			["listens on", report.socket + (report.tcp_port ? `, and 127.0.0.1:${report.tcp_port} with a token` : "")],
			["clients", `${plural(report.connections, "connection")}, one of them this dashboard's; `
				+ `${plural(totals.connections, "connection")} and ${plural(totals.sessions, "build")} since it started`],
			["commands", `${count(totals.succeeded)} succeeded, ${count(totals.failed)} failed`
				+ extra(totals, ["not_started", "timed_out", "cancelled"])],
			["processor time", `${duration(totals.user_s)} user, ${duration(totals.system_s)} system`],
			["largest command", memory(totals.peak_kib)],
		);
		for (const [why, n] of Object.entries(totals.refused ?? {}).filter(([, n]) => n)) {
			facts.push(["clients refused", `${count(n)} for ${why}`]);
		}
		if (totals.malformed) {
			facts.push(["broken connections", count(totals.malformed)]);
		}
		facts.push(["memory brake", brake(report.brake)]);
		if (report.memory_waits) {
			facts.push(["waits for memory", waits(report.memory_waits)]);
		}
		if (report.cache) {
			facts.push(["store", report.cache.store]);
		}
	}
	if (machine?.total_kib) {
		const pressure = machine.pressure == null ? "" : `; somebody waited for it ${machine.pressure} % of ten seconds`;
		facts.push(["machine's memory", `${memory(machine.available_kib)} of ${memory(machine.total_kib)} available${pressure}`]);
	}
	return facts;
}

function extra(totals, names) {
	return names.filter((name) => totals[name]).map((name) => `, ${count(totals[name])} ${name.replaceAll("_", " ")}`).join("");
}

function waits(waits) {
	const killed = waits.killed ? `; ${plural(waits.killed, "command")} killed because memory ran out` : "";
	return `${plural(waits.waited, "command")} waited, ${duration(waits.waited_s)} in all${killed}`;
}

function brake(brake) {
	if (!brake?.on) {
		return "off";
	}
	const past = brake.times ? `; ${plural(brake.times, "time")} so far, ${duration(brake.seconds)} in all` : "";
	return (brake.why ? `holds commands back since ${duration(brake.since_s)}: ${brake.why}` : "released") + past;
}
