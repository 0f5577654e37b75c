// Numbers and names as users read them. Pure.

const whole = new Intl.NumberFormat("en");

export const count = (n) => whole.format(n ?? 0);

export function plural(n, one, many = one + "s") {
	return `${count(n)} ${n === 1 ? one : many}`;
}

// Powers of a thousand, as in wafcc.
export function size(bytes) {
	for (const [unit, name] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
		if (bytes >= unit) {
			return `${(bytes / unit).toFixed(1)} ${name}`;
		}
	}
	return `${count(bytes ?? 0)} B`;
}

// Sizes of memory, which the kernel counts in KiB.
export function memory(kib) {
	if (kib == null) {
		return "unknown";
	}
	if (kib >= 1 << 20) {
		return `${(kib / (1 << 20)).toFixed(1)} GiB`;
	}
	return `${(kib / 1024).toFixed(kib < 100 * 1024 ? 1 : 0)} MiB`;
}

export function duration(seconds) {
	const s = Math.max(0, Math.floor(seconds ?? 0));
	if (s < 60) {
		return seconds < 10 ? `${Math.max(0, seconds ?? 0).toFixed(1)} s` : `${s} s`;
	}
	return s < 3600 ? `${Math.floor(s / 60)} min ${s % 60} s` : `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
}

export function ago(seconds) {
	const s = Math.floor(seconds);
	return s < 1 ? "now" : `${s < 60 ? `${s} s` : duration(s)} ago`;
}

export function waits(n) {
	return `${plural(n, "command")} ${n === 1 ? "waits" : "wait"}`;
}

export function share(part, all) {
	return all > 0 ? `${((100 * part) / all).toFixed(part === all || part === 0 ? 0 : 1)} %` : "–";
}

export function base(path) {
	const parts = String(path).split("/").filter(Boolean);
	return parts.length ? parts[parts.length - 1] : String(path);
}

// A short name for a command: its program, and its source or output.
export function brief(argv) {
	if (!argv.length) {
		return "(no arguments)";
	}
	const at = argv.indexOf("-o");
	const glued = argv.find((word) => word.startsWith("-o") && word.length > 2);
	const source = argv.find((word, i) => i > 0 && argv[i - 1] !== "-o" && /\.(c|cc|cpp|cxx|C|s|S|m|mm|f|f90|d|rs|ll|bc)$/.test(word));
	const about = source ?? (at > 0 ? argv[at + 1] : glued?.slice(2)) ?? argv.slice(1).join(" ");
	return about ? `${base(argv[0])} ${source || at > 0 || glued ? base(about) : about}` : base(argv[0]);
}

// A line for a shell, with quotes where they are needed.
export function line(argv) {
	const quote = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
	return argv.map(quote).join(" ");
}
