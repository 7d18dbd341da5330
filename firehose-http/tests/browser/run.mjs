// Drives a real browser against the built gateway: its own EventSource through a cut connection, and the page.
//
//   GATEWAY=target/debug/gateway CHROMIUM=/usr/bin/chromium [SCREENSHOTS=folder] node run.mjs
//
// Nothing here sleeps: every step waits for what it needs to see, up to a limit.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { chromium } from "playwright-core";

const LIMIT = 15_000;
const { GATEWAY, CHROMIUM = "/usr/bin/chromium", SCREENSHOTS } = process.env;
const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"];

/** The gateway on a free port. */
async function startGateway() {
  const child = spawn(GATEWAY, ["--listen", "127.0.0.1:0"], { stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise((resolve, reject) => { child.on("exit", resolve); child.on("error", reject); });
  const line = await new Promise((resolve, reject) => {
    let text = "";
    child.stdout.on("data", (chunk) => { text += chunk; if (text.includes("\n")) resolve(text); });
    ended.then((code) => reject(new Error(`the gateway ended with ${code}`)), reject);
  });
  const port = Number(/http:\/\/127\.0\.0\.1:(\d+)/.exec(line)[1]);
  return { port, ended, kill: (signal) => child.kill(signal) };
}

/** A wire between browser and gateway that can be cut: what is open is destroyed, what comes is refused. */
async function startWire(port) {
  const sockets = new Set();
  let whole = true;
  const server = net.createServer((near) => {
    if (!whole) { near.resetAndDestroy(); return; }
    const far = net.connect(port, "127.0.0.1");
    for (const [socket, other] of [[near, far], [far, near]]) {
      sockets.add(socket);
      socket.setNoDelay(true);
      socket.on("error", () => {}).on("close", () => { sockets.delete(socket); other.destroy(); });
      socket.pipe(other);
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    cut() { whole = false; for (const socket of sockets) socket.resetAndDestroy(); },
    mend() { whole = true; },
    close() { this.cut(); server.close(); },
  };
}

const gateway = await startGateway();
const wire = await startWire(gateway.port);
const profile = mkdtempSync(path.join(tmpdir(), "firehose-browser-"));
let browser;

/** Publishes past the wire, as another client would. */
async function publish(stream, data) {
  const url = `http://127.0.0.1:${gateway.port}/firehose/streams/${encodeURIComponent(stream)}`;
  const response = await fetch(url, { method: "POST", body: data });
  assert.equal(response.status, 201);
  return response.json();
}

const pane = (page, n) => page.locator(".pane").nth(n - 1);
const texts = (where, selector = ".msg .data") => where.locator(selector).allTextContents();
async function inState(where, state) {
  await where.and(where.page().locator(`[data-state="${state}"]`)).waitFor();
}
async function write(where, text) {
  await where.locator("textarea").fill(text);
  await where.locator("textarea").press("Enter");
}
async function shows(where, text) { await where.locator(".msg .data").getByText(text, { exact: true }).waitFor(); }

/** A page in a tab of its own session; what its console complains of is a failure. */
async function open(address = "/", options = {}) {
  const context = options.theme || options.viewport
    ? await browser.browser().newContext({ colorScheme: options.theme, viewport: options.viewport, deviceScaleFactor: options.scale ?? 1 })
    : browser;
  const page = await context.newPage();
  page.setDefaultTimeout(LIMIT);
  const complaints = [];
  page.on("pageerror", (e) => complaints.push(String(e)));
  page.on("console", (m) => {
    // A cut wire is what several tests are about.
    if (m.type() === "error" && !m.text().includes("net::ERR_")) complaints.push(m.text());
  });
  await page.goto(wire.url + address);
  const close = async () => { await page.close(); if (context !== browser) await context.close(); };
  return { page, complaints, close };
}

const tests = [];
const test = (name, body) => tests.push({ name, body });

// ---- EventSource itself ----

/** Opens an EventSource in the page that keeps every event of `names`; resolves when it is open. */
async function listen(page, query, names) {
  await page.evaluate(([query, names]) => new Promise((resolve) => {
    window.seen = [];
    window.opened = 0;
    window.source = new EventSource(`/firehose/sse?${query}`);
    for (const name of names) {
      window.source.addEventListener(name, (e) => window.seen.push({ name, id: e.lastEventId, ...JSON.parse(e.data) }));
    }
    window.source.onopen = () => { window.opened++; resolve(); };
  }), [query, names]);
}
const seen = async (page, n) => {
  await page.waitForFunction((n) => window.seen.length >= n, n);
  return page.evaluate(() => window.seen);
};

test("EventSource comes back by itself and gets exactly what it missed, in order, once", async () => {
  const { page, close } = await open("/healthz");
  await listen(page, "stream=cut", ["cut"]);
  await publish("cut", "before 1");
  await publish("cut", "before 2");
  await seen(page, 2);
  wire.cut();
  await page.waitForFunction(() => window.source.readyState === EventSource.CONNECTING);
  const missed = Array.from({ length: 50 }, (_, n) => `missed ${n + 1}`);
  for (const data of missed) await publish("cut", data);
  wire.mend();
  await page.waitForFunction(() => window.opened === 2);
  await publish("cut", "after");
  const all = await seen(page, 53);
  assert.deepEqual(all.map((e) => e.data), ["before 1", "before 2", ...missed, "after"]);
  assert.deepEqual(all.map((e) => e.sequence), all.map((_, n) => n + 1));
  assert.ok(all.every((e) => /^f[\w-]+$/.test(e.id)), "every id is a token");
  await close();
});

test("EventSource that was cut off before its first message misses nothing either", async () => {
  const { page, close } = await open("/healthz");
  await listen(page, "streams=early,other", ["early", "other"]);
  wire.cut();
  await page.waitForFunction(() => window.source.readyState === EventSource.CONNECTING);
  await publish("early", "one");
  await publish("other", "two");
  wire.mend();
  const all = await seen(page, 2);
  assert.deepEqual(all.map((e) => e.data).sort(), ["one", "two"]);
  await close();
});

test("names that EventSource uses itself, and names with line breaks and emoji, arrive", async () => {
  const { page, close } = await open("/healthz");
  const names = ["open", "error", "message", "two\nlines", "🚒 ünï", "a,b", "a/b"];
  const events = ["firehose:open", "firehose:error", "firehose:message", "two lines", "🚒 ünï", "a,b", "a/b"];
  await listen(page, names.map((name) => `stream=${encodeURIComponent(name)}`).join("&"), events);
  for (const name of names) await publish(name, `to ${name}`);
  const all = await seen(page, names.length);
  assert.deepEqual(all.map((e) => [e.name, e.data]).sort(), events.map((e, n) => [e, `to ${names[n]}`]).sort());
  await close();
});

// ---- the page ----

test("what is typed into one pane arrives in the others", async () => {
  const { page, complaints, close } = await open("/?stream=typed&stream=typed&stream=else");
  for (const n of [1, 2, 3]) await inState(pane(page, n), "live");
  await write(pane(page, 1), "hello <b>there</b>");
  await write(pane(page, 3), "only here");
  for (const n of [1, 2]) await shows(pane(page, n), "hello <b>there</b>");
  await shows(pane(page, 3), "only here");
  assert.deepEqual(await texts(pane(page, 2)), ["hello <b>there</b>"]);
  assert.deepEqual(await texts(pane(page, 2), ".msg .seq"), ["#1"]);
  assert.equal(await page.locator(".msg b").count(), 0, "data is text, never markup");
  assert.equal(await pane(page, 1).locator("textarea").inputValue(), "");
  assert.deepEqual(complaints, []);
  await close();
});

test("a pane that was cut off catches up, and says with how much", async () => {
  const { page, complaints, close } = await open("/?stream=pane&stream=pane");
  for (const n of [1, 2]) await inState(pane(page, n), "live");
  await pane(page, 2).getByRole("button", { name: "Cut" }).click();
  await inState(pane(page, 2), "cut");
  for (const text of ["one", "two", "three"]) { await write(pane(page, 1), text); await shows(pane(page, 1), text); }
  assert.deepEqual(await texts(pane(page, 2)), []);
  await pane(page, 2).getByRole("button", { name: "Reconnect" }).click();
  await shows(pane(page, 2), "three");
  assert.deepEqual(await texts(pane(page, 2), ".msg.caught .data"), ["one", "two", "three"]);
  assert.deepEqual(await texts(pane(page, 2), ".note.caught"), ["Caught up 3 messages"]);
  await write(pane(page, 1), "four");
  await shows(pane(page, 2), "four");
  assert.equal(await pane(page, 2).locator(".msg.caught").count(), 3, "what comes live is not marked");
  assert.equal(await pane(page, 1).locator(".msg.caught").count(), 0);
  assert.deepEqual(complaints, []);
  await close();
});

test("a reload shows what was there, and what was missed meanwhile", async () => {
  const { page, complaints, close } = await open("/?stream=reload");
  await inState(pane(page, 1), "live");
  await write(pane(page, 1), "before");
  await shows(pane(page, 1), "before");
  await page.goto("about:blank");
  await publish("reload", "meanwhile 1");
  await publish("reload", "meanwhile 2");
  await page.goto(`${wire.url}/`);
  await shows(pane(page, 1), "meanwhile 2");
  assert.deepEqual(await texts(pane(page, 1)), ["before", "meanwhile 1", "meanwhile 2"]);
  assert.deepEqual(await texts(pane(page, 1), ".note.caught"), ["Caught up 2 messages"]);
  await page.reload();
  await inState(pane(page, 1), "live");
  assert.deepEqual(await texts(pane(page, 1)), ["before", "meanwhile 1", "meanwhile 2"]);
  assert.deepEqual(complaints, []);
  await close();
});

test("a lost connection is shown, and mends by itself", async () => {
  const { page, close } = await open("/?stream=lost");
  await inState(pane(page, 1), "live");
  wire.cut();
  await inState(pane(page, 1), "reconnecting");
  await publish("lost", "away");
  wire.mend();
  await shows(pane(page, 1), "away");
  await inState(pane(page, 1), "live");
  assert.deepEqual(await texts(pane(page, 1), ".note.caught"), ["Caught up 1 message"]);
  await close();
});

test("a pane moves to another stream, whatever its name", async () => {
  const { page, complaints, close } = await open("/?stream=first");
  await inState(pane(page, 1), "live");
  for (const name of ["open", "message", "🚒 a/b, ünï?#%", "firehose_reset"]) {
    await pane(page, 1).locator("input").fill(name);
    await pane(page, 1).locator("input").press("Enter");
    await inState(pane(page, 1), "live");
    await write(pane(page, 1), `hello ${name}`);
    await shows(pane(page, 1), `hello ${name}`);
    assert.deepEqual(await texts(pane(page, 1)), [`hello ${name}`]);
  }
  await page.goto(`${wire.url}/?stream=${encodeURIComponent("two\nlines")}`);
  await inState(pane(page, 1), "live");
  await write(pane(page, 1), "hello lines");
  await shows(pane(page, 1), "hello lines");
  assert.deepEqual(complaints, []);
  await close();
});

test("a name that is too long is refused with the reason", async () => {
  const { page, close } = await open("/?stream=short");
  await inState(pane(page, 1), "live");
  await pane(page, 1).locator("input").fill("é".repeat(1000));
  await pane(page, 1).locator("input").press("Enter");
  await inState(pane(page, 1), "refused");
  await pane(page, 1).locator(".hint").getByText("2000 bytes, at most 1024 are allowed").waitFor();
  await close();
});

test("the page fits a phone and a desk, by day and by night", async () => {
  const sizes = { desk: { width: 1280, height: 800 }, phone: { width: 390, height: 844 } };
  for (const theme of ["light", "dark"]) {
    for (const [size, viewport] of Object.entries(sizes)) {
      const stream = `orders-${theme}-${size}`;
      const query = [1, 2, 3].map(() => `stream=${stream}`).join("&");
      const { page, close } = await open(`/?${query}`, { theme, viewport, scale: size === "phone" ? 2 : 1 });
      for (const n of [1, 2, 3]) await inState(pane(page, n), "live");
      for (const text of ["order 1041: paid", "order 1042: placed, 3 items"]) {
        await write(pane(page, 1), text);
        await shows(pane(page, 3), text);
      }
      await pane(page, 2).getByRole("button", { name: "Cut" }).click();
      await pane(page, 3).getByRole("button", { name: "Cut" }).click();
      for (const text of ["order 1042: paid", "{\"order\":1043,\"status\":\"placed\",\"total\":\"42.00\"}", "order 1041: shipped 📦"]) {
        await write(pane(page, 1), text);
        await shows(pane(page, 1), text);
      }
      await pane(page, 2).getByRole("button", { name: "Reconnect" }).click();
      await shows(pane(page, 2), "order 1041: shipped 📦");
      const wide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth);
      assert.equal(wide, false, `${theme} ${size}: nothing sticks out`);
      if (SCREENSHOTS) {
        mkdirSync(SCREENSHOTS, { recursive: true });
        await page.screenshot({ path: path.join(SCREENSHOTS, `${size}-${theme}.png`), fullPage: size === "phone" });
      }
      await close();
    }
  }
});

// Last: it ends the gateway.
test("a gateway that is told to end lets go of its clients and ends within five seconds", async () => {
  const { page, close } = await open("/?stream=end&stream=end");
  for (const n of [1, 2]) await inState(pane(page, n), "live");
  const began = performance.now();
  gateway.kill("SIGTERM");
  assert.equal(await gateway.ended, 0);
  assert.ok(performance.now() - began < 5000);
  await page.waitForFunction(() => document.querySelector(".pane").dataset.state !== "live");
  await close();
});

// ---- running ----

let passed = 0, failed = 0;
async function clean() {
  wire.close();
  gateway.kill("SIGKILL");
  await browser?.close().catch(() => {});
  rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
}
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => clean().finally(() => process.exit(130)));

try {
  browser = await chromium.launchPersistentContext(profile, {
    executablePath: CHROMIUM, headless: true, args: FLAGS, viewport: { width: 1280, height: 800 },
    handleSIGINT: false, handleSIGTERM: false, handleSIGHUP: false,
  });
  for (const { name, body } of tests) {
    let timer;
    const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error("not done within 60 s")), 60_000); });
    try {
      await Promise.race([body(), late]);
      passed++;
      console.log(`ok      ${name}`);
    } catch (error) {
      failed++;
      console.log(`FAILED  ${name}\n${error.stack ?? error}`);
    } finally {
      clearTimeout(timer);
      wire.mend();
      for (const page of browser.pages().slice(1)) await page.close().catch(() => {});
    }
  }
} catch (error) {
  failed++;
  console.log(`FAILED  ${error.stack ?? error}`);
} finally {
  await clean();
}
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed ? 1 : 0;
