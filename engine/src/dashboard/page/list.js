// A list of cards that changes while the user reads it: open cards stay open, and the focus stays.
//
// A card is {key, name, note, side, tone, share, facts, code}: texts, a fraction of 1 or null, pairs of texts, a
// command line. Everything is set as text, never as HTML.

export function element(tag, name, text) {
	const made = document.createElement(tag);
	if (name) {
		made.className = name;
	}
	if (text !== undefined) {
		made.textContent = text;
	}
	return made;
}

export function setText(place, text) {
	if (place.textContent !== text) {
		place.textContent = text;
	}
}

export function setFacts(list, facts) {
	const flat = facts.flat().map(String);
	if (list.children.length !== flat.length) {
		list.replaceChildren(...flat.map((_, i) => element(i % 2 ? "dd" : "dt")));
	}
	flat.forEach((text, i) => setText(list.children[i], text));
}

export function setBar(bar, share) {
	bar.hidden = share == null;
	bar.firstElementChild.style.width = `${100 * Math.min(1, Math.max(0, share ?? 0))}%`;
}

class Row {
	constructor(card) {
		this.item = element("li");
		this.opens = Boolean(card.facts || card.code);
		this.head = element(this.opens ? "summary" : "div", "head");
		this.head.tabIndex = -1;
		this.name = element("span", "name");
		this.note = element("span", "note");
		this.side = element("span", "side");
		this.bar = element("div", "bar");
		this.bar.append(element("i"));
		this.head.append(this.name, this.note, this.side, this.bar);
		if (this.opens) {
			this.details = element("details");
			this.facts = element("dl");
			this.code = element("pre");
			const body = element("div", "body");
			body.append(this.code, this.facts);
			this.details.append(this.head, body);
			this.details.addEventListener("toggle", () => this.fill());
			this.item.append(this.details);
		} else {
			this.item.append(this.head);
		}
		this.show(card);
	}

	show(card) {
		this.card = card;
		this.item.dataset.tone = card.tone ?? "";
		this.item.dataset.key = card.key;
		setText(this.name, card.name);
		setText(this.note, card.note ?? "");
		setText(this.side, card.side ?? "");
		setBar(this.bar, card.share);
		this.fill();
	}

	fill() {
		if (this.details?.open) {
			setFacts(this.facts, this.card.facts ?? []);
			setText(this.code, this.card.code ?? "");
			this.code.hidden = !this.card.code;
		}
	}
}

export class List {
	constructor(root) {
		this.root = root;
		this.rows = new Map();
		root.addEventListener("keydown", (event) => this.move(event));
		root.addEventListener("focusin", (event) => this.reach(event.target.closest(".head")));
	}

	// Shows cards in this order. `none` is the text for an empty list.
	show(cards, none) {
		const focused = document.activeElement;
		const held = this.root.contains(focused) ? focused : null;
		const at = held ? this.heads().indexOf(held.closest(".head")) : -1;
		const rows = new Map();
		for (const card of cards) {
			let row = this.rows.get(card.key);
			if (row && row.opens === Boolean(card.facts || card.code)) {
				row.show(card);
			} else {
				row = new Row(card);
			}
			rows.set(card.key, row);
		}
		const kept = new Set([...rows.values()].map((row) => row.item));
		for (const item of [...this.root.children]) {
			if (!kept.has(item)) {
				item.remove();
			}
		}
		let next = this.root.firstElementChild;
		for (const row of rows.values()) {
			if (row.item === next) {
				next = next.nextElementSibling;
			} else {
				this.root.insertBefore(row.item, next);
			}
		}
		this.rows = rows;
		if (!rows.size && none) {
			this.root.append(element("li", "none", none));
		}
		const heads = this.heads();
		if (held && document.activeElement !== held) {
			const again = held.isConnected ? held : heads[Math.min(at, heads.length - 1)];
			again?.focus();
		}
		if (heads.length && !heads.some((head) => head.tabIndex === 0)) {
			heads[0].tabIndex = 0;
		}
	}

	heads() {
		return [...this.root.querySelectorAll(".head")];
	}

	// Tab returns to the card that had the focus.
	reach(head) {
		if (head) {
			this.heads().forEach((other) => { other.tabIndex = other === head ? 0 : -1; });
		}
	}

	move(event) {
		const heads = this.heads();
		const at = heads.indexOf(event.target);
		const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: heads.length - 1 }[event.key];
		if (at < 0 || to === undefined || event.altKey || event.ctrlKey || event.metaKey) {
			return;
		}
		event.preventDefault();
		heads[Math.min(heads.length - 1, Math.max(0, to))].focus();
	}
}
