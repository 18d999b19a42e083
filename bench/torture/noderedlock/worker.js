// A worker of `redlatch-torture run` that locks with node-redlock. It does what
// internal/torture/worker does in Go, in the same order, and writes the same events.
"use strict";

const fs = require("node:fs");
const net = require("node:net");
const readline = require("node:readline");
const Redis = require("ioredis");
const Redlock = require("redlock");

const hastyShare = 0.1, hastyPatience = 30, longestPause = 20, briefShare = 0.5, patienceTTLs = 4; // times in ms
const probePatience = 1000, probePause = 50;

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const now = () => process.hrtime.bigint(); // CLOCK_MONOTONIC
const say = (report) => process.stdout.write(JSON.stringify(report) + "\n");

let a; // the assignment
const orders = { working: false, asked: false, over: false, wake: () => {} };

// Caller is one of those of a worker that take locks at the same time.
class Caller {
	constructor(number, log) {
		this.number = number;
		this.writes = 0;
		this.log = fs.openSync(log, "a", 0o600);
		this.at = a.probe ? null : new Register(a.register);
	}
	write(kind, fields) { write(this.log, kind, fields); }
}

// write puts an event into the log in one system call. Times are put in as text:
// they are too large for a number.
function write(log, kind, fields = {}) {
	const { u, ...rest } = fields;
	let line = `{"t":${now()},"e":"${kind}"`;
	if (u !== undefined) line += `,"u":${u}`;
	for (const [key, value] of Object.entries(rest)) if (value) line += `,"${key}":${JSON.stringify(value)}`;
	fs.writeSync(log, line + "}\n");
}

class Register {
	constructor(address) {
		const [host, port] = address.split(":");
		this.socket = net.connect(+port, host);
		this.socket.setNoDelay(true);
		this.waiting = [];
		readline.createInterface({ input: this.socket }).on("line", (line) => this.waiting.shift()(JSON.parse(line)));
		this.socket.on("error", () => process.exit(1));
	}
	ask(request) {
		return new Promise((answer) => {
			this.waiting.push(answer);
			this.socket.write(JSON.stringify(request) + "\n");
		});
	}
}

// until is the end of a lock's validity, by the clock of the log.
const until = (lock) => now() + BigInt(lock.expiration - Date.now()) * 1000000n;
const valid = (lock) => Date.now() < lock.expiration;
const brief = (err) => String(err && err.message || err).replace(/\n/g, " ").slice(0, 160);

// acquire makes node-redlock's rounds of tries until patience ends. It cannot be
// cancelled: what it acquires too late is released at once.
async function acquire(redlock, name, patience) {
	let over = false;
	const trying = (async () => {
		for (;;) {
			try {
				const lock = await redlock.lock(name, a.ttl_ms);
				if (!over) return lock;
				lock.unlock().catch(() => {});
				throw new Error("too late");
			} catch (err) {
				if (over) throw err;
			}
		}
	})();
	trying.catch(() => {});
	const limit = sleep(patience).then(() => { over = true; throw new Error("patience ended"); });
	limit.catch(() => {});
	return Promise.race([trying, limit]);
}

async function labour(c, name, held) {
	let span = Math.random() * a.hold_ms;
	if (Math.random() < a.long_holds) span = a.ttl_ms / 2 + Math.random() * a.ttl_ms;
	let renewed = performance.now();
	const end = renewed + span;
	for (;;) {
		if (!valid(held.lock)) return false;
		const left = end - performance.now();
		if (left <= 0 || !orders.working) return true;
		if (performance.now() - renewed > a.ttl_ms / 3) {
			renewed = performance.now();
			try {
				held.lock = await held.lock.extend(a.ttl_ms);
				c.write("extended", { n: name, u: until(held.lock) });
			} catch {
				// It is tried again; the end of the validity decides.
			}
		}
		await sleep(Math.min(left, 10));
	}
}

async function visit(c, name, held) {
	c.write("reading", { n: name });
	const read = await c.at.ask({ worker: a.worker, op: "read", name });
	c.write("read", { n: name, o: read.open });
	if (!await labour(c, name, held)) return c.write("lost", { n: name });
	await c.at.ask({ worker: a.worker, op: "prepare", name });
	const id = `${a.worker}.${a.life}.${c.number}.${++c.writes}`;
	c.write("writing", { n: name, i: id });
	await c.at.ask({ worker: a.worker, op: "write", name, id, open: read.open });
	c.write("wrote", { n: name, i: id });
}

async function turn(redlock, c) {
	const name = a.names[Math.floor(Math.random() * a.names.length)];
	let patience = patienceTTLs * a.ttl_ms;
	const luck = Math.random();
	if (a.probe) patience = probePatience;
	else if (luck < hastyShare) patience = Math.random() * hastyPatience;
	else if (luck < hastyShare + briefShare) patience = Math.random() * a.ttl_ms / 4;
	c.write("call", { n: name });
	const held = {};
	try {
		held.lock = await acquire(redlock, name, patience);
	} catch (err) {
		return c.write("fail", { n: name, r: brief(err) });
	}
	c.write("acquired", { n: name, u: until(held.lock) });
	if (!a.probe) await visit(c, name, held);
	c.write("releasing", { n: name });
	let failure;
	try {
		await held.lock.unlock();
	} catch (err) {
		failure = brief(err);
	}
	c.write("released", { n: name, r: failure });
}

async function work() {
	const callers = a.logs.map((log, i) => new Caller(i + 1, log));
	const clients = a.nodes.map((url) => {
		const { hostname, port } = new URL(url);
		// A node that hangs would hang every lock: give up on it after a twentieth
		// of the TTL, as redsync does.
		const client = new Redis({ host: hostname, port: +port, commandTimeout: a.ttl_ms / 20 });
		client.on("error", () => {}); // or Node ends the process
		return client;
	});
	// As in its README, with as long as is left of a round to the workers' patience.
	const redlock = new Redlock(clients, { driftFactor: 0.01, retryCount: 10, retryDelay: 200, retryJitter: 200 });
	redlock.on("clientError", () => {});
	say({ ready: true });
	while (!orders.over) {
		if (orders.asked) {
			orders.asked = false;
			say({ rested: true });
		}
		if (!orders.working) {
			await new Promise((wake) => { orders.wake = wake; });
			continue;
		}
		await Promise.all(callers.map(async (c) => {
			while (orders.working) {
				await turn(redlock, c);
				await sleep(a.probe ? probePause : Math.random() * longestPause);
			}
		}));
	}
	process.exit(0);
}

readline.createInterface({ input: process.stdin }).on("line", (line) => {
	if (!a) {
		a = JSON.parse(line);
		work().catch((err) => { say({ failed: brief(err) }); process.exit(1); });
		return;
	}
	const order = JSON.parse(line);
	orders.working = order === "go";
	if (order === "rest") orders.asked = true;
	orders.wake();
}).on("close", () => {
	orders.over = true;
	orders.working = false;
	orders.wake();
});
