"use strict";
(() => {
	// Colours say what kind of trouble it is, for nodes and for workers.
	const kinds = {
		kill: ["#64707d", "killed"], wipe: ["#8c4a60", "killed, data lost"], blackout: ["#8b0f2e", "a majority killed, data lost"],
		hang: ["#7a4fb5", "hung"], partition: ["#d1495b", "cut off"], split: ["#e58a97", "cut off from half of the workers"],
		latency: ["#e0a33a", "slow"], "half-open": ["#b3662e", "half-open"], reset: ["#e06c2e", "connections reset"],
		refuse: ["#a83d1e", "connections refused"], "lost-reply": ["#d98cb3", "answers lost"], namespace: ["#b02a6f", "packets lost"],
		clock: ["#1f8a9e", "clock stepped"], nudge: ["#7cc4cf", "clock nudged"],
		demote: ["#2e7d5b", "a replica for a while"], failback: ["#1d5c41", "another promoted, and it again"], attach: ["#b9c4a0", "given a replica"], settings: ["#c4b79a", "settings changed"],
		flush: ["#8c4a60", "all keys deleted"], scripts: ["#a9b8d6", "scripts deleted"], restore: ["#6d2f52", "killed, an old copy of its data loaded"],
		admit: ["#5b8c2a", "admitted by hand"], set: ["#c98a1b", "given another MaxTTL"], "set-all": ["#9a6a10", "all given another MaxTTL"],
		failover: ["#2e7d5b", "a replica promoted"], lag: ["#b3662e", "a replica promoted that was behind"],
		minority: ["#d1495b", "cut off with one Sentinel and half of the workers"], "sentinel-kill": ["#64707d", "killed"],
		"sentinel-hang": ["#7a4fb5", "hung"], takeover: ["#8b0f2e", "a replica promoted by itself"], move: ["#3b7dd8", "a slot moved"],
		fix: ["#8c4a60", "killed, its slots given away"],
		"follower-kill": ["#64707d", "killed"], "follower-hang": ["#7a4fb5", "hung"], restart: ["#8b0f2e", "all killed"],
		stop: ["#7a4fb5", "stopped"], crash: ["#64707d", "killed"], starve: ["#e0a33a", "starved of CPU"],
		stranger: ["#777777", "a client with other settings came"], neighbour: ["#777777", "a worker of another deployment came"],
	};
	const palette = ["#3b7dd8", "#e8833a", "#3f9f6b", "#b65cc4", "#c9a227", "#4fb3bf", "#d65a7a", "#7a8b3a", "#8a6fd1", "#a8694a"];
	const worker = (n) => n <= palette.length ? palette[n - 1] : `hsl(${(n * 137.5) % 360} 55% 50%)`;
	const second = 10000; // of the data's unit

	// Absolute times, for searching.
	const holds = data.holds.map((flat) => {
		const from = new Float64Array(flat.length / 3), to = new Float64Array(flat.length / 3), who = new Uint16Array(flat.length / 3);
		let at = 0;
		for (let i = 0; i < from.length; i++) {
			at += flat[3 * i];
			from[i] = at; to[i] = at + flat[3 * i + 1]; who[i] = flat[3 * i + 2];
		}
		return { from, to, who };
	});

	const rows = [];
	const row = (label, height, draw, hit) => rows.push({ label, height, draw, hit });
	const canvas = document.getElementById("line"), overview = document.getElementById("overview");
	const tip = document.getElementById("tip"), where = document.getElementById("where");
	const margin = 118;
	let left = 0, right = Math.max(data.length, 1), width = 1000, ink = "#000", soft = "#777", grid = "#ddd", good = "#1a7f4b", bad = "#c02626";

	const x = (t) => margin + (t - left) / (right - left) * (width - margin);
	const t = (px) => left + (px - margin) / (width - margin) * (right - left);
	const bar = (c, from, to, y, h, colour, least = 1) => {
		const a = Math.max(margin, x(from)), b = Math.min(width, Math.max(x(to), x(from) + least));
		if (b <= margin || a >= width) return;
		c.fillStyle = colour;
		c.fillRect(a, y, Math.max(b - a, least), h);
	};
	// hatch is for what is still out though the fault is over.
	const hatch = (c, from, to, y, h, colour) => {
		const a = Math.max(margin, x(from)), b = Math.min(width, x(to));
		if (b <= a) return;
		c.save();
		c.beginPath(); c.rect(a, y, b - a, h); c.clip();
		c.globalAlpha = .18; c.fillStyle = colour; c.fillRect(a, y, b - a, h);
		c.globalAlpha = .55; c.strokeStyle = colour; c.lineWidth = 1;
		c.beginPath();
		for (let s = Math.floor((a - h) / 6) * 6; s < b; s += 6) { c.moveTo(s, y + h); c.lineTo(s + h, y); }
		c.stroke();
		c.restore();
	};
	const seconds = (n, digits = 3) => (n / second).toFixed(digits) + " s";
	const long = (n) => n < 10 * second / 10 ? (n / 10).toFixed(1) + " ms" : seconds(n);
	const describe = (f) => `${f.kind}: ${kinds[f.kind] ? kinds[f.kind][1] : ""}${f.detail ? ", " + f.detail : ""}\nat ${seconds(f.from)} for ${long(f.to - f.from)}` +
		(f.out > f.to ? `\nout until ${seconds(f.out)}` : "");

	for (let n = 1; n <= data.nodes.length; n++) {
		const mine = data.faults.filter((f) => f.nodes.includes(n));
		row(data.nodes[n - 1], 20, (c, y, h) => {
			bar(c, 0, data.length, y + h / 2 - 1, 2, good);
			for (const f of mine) if (f.out > f.to && f.out >= left && f.from <= right) hatch(c, f.to, f.out, y + 2, h - 4, soft);
			for (const f of mine) {
				if (f.to < left || f.from > right) continue;
				const thin = f.split || ["clock", "nudge", "attach", "settings", "scripts"].includes(f.kind);
				bar(c, f.from, f.to, thin ? y + h - 8 : y + 2, thin ? 6 : h - 4, kinds[f.kind][0], 2);
			}
		}, (at, slack) => {
			const f = mine.findLast((f) => f.from - slack <= at && at <= f.to + slack) || mine.findLast((f) => f.from <= at && at <= f.out);
			return f && describe(f);
		});
	}
	row("quorum up", 16, (c, y, h) => {
		bar(c, 0, data.length, y + 4, h - 8, bad);
		for (const [from, to] of data.up) bar(c, from, to, y + 3, h - 6, good, 0);
	}, (at) => data.up.some(([a, b]) => a <= at && at <= b) ? "a quorum of nodes is up" : "no quorum of nodes is up");
	row("no lock to be had", 16, (c, y, h) => {
		for (const [from, to] of data.probes) bar(c, from, to, y + 4, h - 8, bad, 2);
	}, (at, slack) => {
		const p = data.probes.find(([a, b]) => a - slack <= at && at <= b + slack);
		return p && `a try for a free lock failed\nat ${seconds(p[0])} after ${long(p[1] - p[0])}`;
	});
	data.names.forEach((name, i) => {
		const { from, to, who } = holds[i];
		const first = (at) => { // the first hold that may end after at: none is longer than a minute
			let a = 0, b = from.length;
			while (a < b) { const m = (a + b) >> 1; if (from[m] < at - 60 * second) a = m + 1; else b = m; }
			return a;
		};
		const mine = data.overlaps.filter((o) => o[0] === i);
		row(name, 30, (c, y, h) => {
			let drawn = -1, last = -1;
			for (let k = first(left); k < from.length && from[k] <= right; k++) {
				if (to[k] < left) continue;
				const px = Math.floor(x(from[k]));
				// Below one pixel there is no telling: every worker's first is drawn.
				if (px === drawn && who[k] === last && x(to[k]) - x(from[k]) < 1) continue;
				drawn = px; last = who[k];
				bar(c, from[k], to[k], y + 3, h - 6, worker(who[k]), .6);
			}
			for (const [, at, length, outside] of mine) {
				c.fillStyle = outside ? "#e0a33a" : bad;
				const p = x(at);
				if (p < margin || p > width) continue;
				c.beginPath(); c.moveTo(p - 5, y - 3); c.lineTo(p + 5, y - 3); c.lineTo(p, y + 5); c.fill();
				bar(c, at, at + length, y + h - 5, 4, c.fillStyle, 2);
			}
		}, (at, slack) => {
			const o = mine.find((o) => o[1] - slack * 2 <= at && at <= o[1] + o[2] + slack * 2);
			const lines = o ? [`OVERLAP at ${seconds(o[1], 4)} for ${long(o[2])}${o[3] ? ", a clock was stepped" : ""}`] : [];
			for (let k = first(at); k < from.length && from[k] <= at + slack && lines.length < 5; k++)
				if (to[k] >= at - slack) lines.push(`worker ${who[k]} at ${seconds(from[k], 4)} for ${long(to[k] - from[k])}`);
			return lines.join("\n");
		});
	});
	for (let n = 1; n <= data.workers; n++) {
		const mine = data.faults.filter((f) => f.workers.includes(n));
		row(`worker ${n}`, 16, (c, y, h) => {
			bar(c, 0, data.length, y + h / 2 - 1, 2, worker(n));
			for (const f of mine) bar(c, f.from, f.to, f.split ? y + h - 6 : y + 2, f.split ? 4 : h - 4, kinds[f.kind][0], 2);
		}, (at, slack) => {
			const f = mine.findLast((f) => f.from - slack <= at && at <= f.to + slack);
			return f && describe(f);
		});
	}

	const axis = 26;
	const total = axis + rows.reduce((sum, r) => sum + r.height, 0) + 6;
	const fit = (element, height) => {
		const ratio = window.devicePixelRatio || 1;
		width = element.clientWidth;
		element.width = width * ratio; element.height = height * ratio;
		element.style.height = height + "px";
		const c = element.getContext("2d");
		c.setTransform(ratio, 0, 0, ratio, 0, 0);
		return c;
	};
	const step = () => {
		const rough = (right - left) / Math.max(2, (width - margin) / 110);
		const power = 10 ** Math.floor(Math.log10(rough));
		return [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
	};

	const draw = () => {
		const style = getComputedStyle(document.documentElement);
		[ink, soft, grid, good, bad] = ["--ink", "--soft", "--line", "--good", "--bad"].map((v) => style.getPropertyValue(v).trim());
		const c = fit(canvas, total);
		c.font = "12px system-ui, 'DejaVu Sans', sans-serif";
		c.textBaseline = "middle";
		const s = step();
		for (let at = Math.ceil(left / s) * s; at <= right; at += s) {
			c.fillStyle = grid; c.fillRect(Math.round(x(at)), axis - 6, 1, total);
			c.fillStyle = soft; c.textAlign = "center";
			c.fillText((at / second).toFixed(Math.max(0, Math.ceil(-Math.log10(s / second)))) + " s", Math.min(width - 18, Math.max(margin + 14, x(at))), 10);
		}
		let y = axis, group = "";
		for (const r of rows) {
			const kind = r.label.split(" ")[0];
			if (group && kind !== group && !r.label.startsWith("no ")) { c.fillStyle = grid; c.fillRect(0, y, width, 1); }
			group = kind;
			r.y = y;
			r.draw(c, y, r.height);
			c.fillStyle = soft; c.textAlign = "left";
			c.fillText(r.label.length > 17 ? "…" + r.label.slice(-16) : r.label, 0, y + r.height / 2);
			y += r.height;
		}
		where.textContent = `${seconds(left)} to ${seconds(right)}`;
		drawOverview();
	};
	const drawOverview = () => {
		const c = fit(overview, 44);
		const at = (n) => margin + n / data.length * (width - margin);
		c.font = "12px system-ui, 'DejaVu Sans', sans-serif"; c.textBaseline = "middle"; c.fillStyle = soft;
		c.fillText("all", 0, 20);
		// How many faults at a time.
		const columns = Math.max(1, Math.floor((width - margin) / 3)), counts = new Uint16Array(columns + 1);
		for (const f of data.faults)
			for (let i = Math.floor(f.from / data.length * columns); i <= Math.min(columns, Math.floor(f.to / data.length * columns)); i++) counts[i]++;
		const most = Math.max(1, ...counts);
		c.fillStyle = "#d1495b"; c.globalAlpha = .55;
		counts.forEach((n, i) => c.fillRect(margin + i * 3, 36 - n / most * 30, 2.4, n / most * 30));
		c.globalAlpha = 1;
		for (const [, from, , outside] of data.overlaps) { c.fillStyle = outside ? "#e0a33a" : bad; c.fillRect(at(from) - 1, 2, 3, 36); }
		c.strokeStyle = ink; c.lineWidth = 1.5;
		c.strokeRect(at(left) + .75, 1, Math.max(4, at(right) - at(left) - 1.5), 38);
	};

	const show = (from, to) => {
		const least = 20; // 2 ms
		let span = Math.min(Math.max(to - from, least), data.length);
		left = Math.max(0, Math.min(from, data.length - span));
		right = left + span;
		requestAnimationFrame(draw);
	};
	const zoom = (factor, centre = (left + right) / 2) => show(centre - (centre - left) * factor, centre + (right - centre) * factor);
	document.getElementById("all").onclick = () => show(0, data.length);
	document.getElementById("in").onclick = () => zoom(.5);
	document.getElementById("out").onclick = () => zoom(2);
	document.getElementById("back").onclick = () => show(left - (right - left) / 2, right - (right - left) / 2);
	document.getElementById("on").onclick = () => show(left + (right - left) / 2, right + (right - left) / 2);
	canvas.ondblclick = () => show(0, data.length);
	canvas.addEventListener("wheel", (e) => {
		e.preventDefault();
		if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) { const d = e.deltaX / (width - margin) * (right - left); show(left + d, right + d); return; }
		zoom(Math.exp(e.deltaY / 400), Math.max(left, t(e.offsetX)));
	}, { passive: false });
	let grabbed = null;
	canvas.onpointerdown = (e) => { grabbed = { px: e.offsetX, left, right }; canvas.setPointerCapture(e.pointerId); };
	canvas.onpointerup = canvas.onpointercancel = () => { grabbed = null; };
	canvas.onpointermove = (e) => {
		if (grabbed) {
			const d = (grabbed.px - e.offsetX) / (width - margin) * (grabbed.right - grabbed.left);
			show(grabbed.left + d, grabbed.right + d);
			return;
		}
		const r = rows.find((r) => e.offsetY >= r.y && e.offsetY < r.y + r.height);
		const text = r && e.offsetX > margin && r.hit(t(e.offsetX), 2 * (right - left) / (width - margin));
		tip.hidden = !text;
		if (text) {
			tip.textContent = `${r.label}\n${text}`;
			tip.style.left = Math.min(e.offsetX + 14, width - tip.offsetWidth - 8) + "px";
			tip.style.top = (e.offsetY + 18) + "px";
		}
	};
	canvas.onpointerleave = () => { tip.hidden = true; };
	const jump = (e) => {
		const at = (e.offsetX - margin) / (overview.clientWidth - margin) * data.length, half = Math.min(right - left, data.length / 8) / 2;
		show(at - half, at + half);
	};
	overview.onpointerdown = (e) => { overview.setPointerCapture(e.pointerId); jump(e); };
	overview.onpointermove = (e) => { if (e.buttons) jump(e); };
	for (const tr of document.querySelectorAll("tr[data-from]"))
		tr.onclick = () => {
			const from = +tr.dataset.from, to = +tr.dataset.to, room = Math.max(to - from, second / 2);
			show(from - room, to + room);
			canvas.scrollIntoView({ behavior: "smooth", block: "center" });
		};
	for (const dot of document.querySelectorAll(".dot")) dot.style.background = kinds[dot.dataset.kind][0];

	const legend = document.getElementById("legend");
	const key = (colour, text) => {
		const span = document.createElement("span"), dot = document.createElement("i");
		dot.className = "dot"; dot.style.background = colour;
		span.append(dot, text);
		legend.append(span);
	};
	const seen = new Set(data.faults.map((f) => f.kind));
	for (const [kind, [colour, text]] of Object.entries(kinds)) if (seen.has(kind)) key(colour, `${kind}: ${text}`);
	key("repeating-linear-gradient(135deg, #888 0 1px, transparent 1px 4px)", "still out: kept from voting, or being reconnected");
	for (let n = 1; n <= data.workers; n++) key(worker(n), `held by worker ${n}`);
	if (data.overlaps.length) { key("#c02626", "overlap"); key("#e0a33a", "overlap outside the assumptions"); }

	window.addEventListener("resize", draw);
	window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
	// The address may name a part, in seconds: report.html#12.5-14.
	const part = () => {
		const m = location.hash.match(/^#([\d.]+)-([\d.]+)$/);
		if (m) show(m[1] * second, m[2] * second);
	};
	window.addEventListener("hashchange", part);
	draw();
	part();
})();
