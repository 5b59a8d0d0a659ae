"use strict";
// The live table, the chart of a conversation, and the token of this tab. Nothing is loaded from
// elsewhere, and texts are only ever set as text.
(() => {
  try { // uPlot asks for a format of this language as it is loaded, and some names are no tags
    new Intl.NumberFormat(navigator.language);
  } catch {
    Object.defineProperty(navigator, "language", { value: "en-US", configurable: true });
  }
  const ROW = 64, KEY = "ullage-token", DASH = "\u2014";
  const rows = new Map();
  let order = [], at = -1, due = false, plot = null, fresh = 0, stream = null, got = false;
  const find = (id) => document.getElementById(id);
  const token = () => sessionStorage.getItem(KEY) || "";
  const headers = () => (token() ? { "x-ullage-token": token() } : {});

  // ── numbers ─────────────────────────────────────────────────────────────────────────────────
  const count = (n) => (n == null ? DASH : n.toLocaleString("en-US"));
  const short = (n) => (n == null ? DASH : n >= 1e3 ? (n / 1e3).toFixed(1) + "k" : String(n));
  const money = (n) => (n == null ? DASH : "$" + n.toFixed(n >= 1 ? 2 : 4));
  const part = (n) => (n == null ? DASH : Math.round(100 * n) + "\u202f%");
  const ago = (t) => {
    const s = Math.max(0, Date.now() / 1e3 - t);
    return !t ? DASH : s < 5 ? "now" : s < 60 ? Math.round(s) + " s" : s < 3600 ? Math.round(s / 60) + " min" : s < 86400 ? Math.round(s / 3600) + " h" : Math.round(s / 86400) + " d";
  };
  const share = (r) => (r.used != null && r.window ? r.used / r.window : null);
  const tier = (r) => {
    if (r.tier && r.tier !== "unavailable") return r.tier;
    const s = share(r);
    return s == null ? "unavailable" : s >= 1 ? "overflow" : s >= 0.9 ? "critical" : s >= 0.8 ? "warning" : s >= 0.7 ? "advisory" : "none";
  };

  // ── the table: only the rows in sight are drawn ─────────────────────────────────────────────
  const SORTS = {
    at: (r) => -r.at, share: (r) => -(share(r) ?? -1), left: (r) => r.left ?? Infinity,
    growth: (r) => -(r.growth ?? -1), dollars: (r) => -(r.dollars ?? -1), used: (r) => -(r.used ?? -1),
  };
  const arrange = () => {
    const words = (find("filter").value || "").toLowerCase().split(/\s+/).filter(Boolean);
    const by = SORTS[find("sort").value] || SORTS.at;
    const held = at >= 0 && order[at] ? order[at].source + "/" + order[at].id : null;
    order = [...rows.values()].filter((r) => {
      if (!words.length) return true;
      const text = [r.title, r.project, r.model, r.upstream, r.id, r.source, r.state, r.last, tier(r)].join(" ").toLowerCase();
      return words.every((w) => text.includes(w));
    });
    order.sort((a, b) => by(a) - by(b) || b.at - a.at);
    if (held) at = order.findIndex((r) => r.source + "/" + r.id === held);
  };
  const make = (tag, kind, text) => {
    const made = document.createElement(tag);
    if (kind) made.className = kind;
    if (text != null) made.textContent = text;
    return made;
  };
  const SVG = "http://www.w3.org/2000/svg";
  const bar = () => {
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", "0 0 100 10");
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("role", "img");
    for (const kind of ["free", "used", "mark"]) {
      const rect = document.createElementNS(SVG, "rect");
      rect.setAttribute("class", kind);
      rect.setAttribute("height", "10");
      if (kind === "free") rect.setAttribute("width", "100");
      svg.append(rect);
    }
    return svg;
  };
  const CELLS = ["", "g", "n", "n wide", "n wide", "n wide", "n wide", "wide"];
  const build = () => {
    const a = make("a", "r");
    a.setAttribute("role", "row");
    a.dataset.nav = "";
    for (const kind of CELLS) {
      const cell = make("span", kind);
      cell.setAttribute("role", "cell");
      a.append(cell);
    }
    a.children[0].append(make("b"), make("small"));
    a.children[1].append(bar(), make("small"));
    a.children[7].append(make("span"), make("small"));
    return a;
  };
  // what is not seen, or turns the direction of others, is written as its number
  const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;
  const clean = (text) => text.replace(HIDDEN, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
  const say = (node, told) => { const text = clean(told); if (node.textContent !== text) node.textContent = text; };
  const fill = (a, r, index) => {
    const c = a.children, s = share(r), t = tier(r), key = r.source + "/" + r.id;
    a.href = "/ullage/conversation?of=" + encodeURIComponent(key);
    a.setAttribute("aria-rowindex", index + 2);
    a.style.top = index * ROW + "px";
    a.classList.toggle("on", index === at);
    say(c[0].children[0], r.title || r.id);
    say(c[0].children[1], [r.source, r.project, r.model, r.upstream].filter(Boolean).join(" \u00b7 "));
    const svg = c[1].children[0];
    svg.setAttribute("class", "gauge tier-" + t);
    svg.setAttribute("aria-label", s == null ? "unknown" : part(s) + " full, " + t);
    svg.children[1].setAttribute("width", Math.min(100, 100 * (s || 0)).toFixed(2));
    const mark = r.compaction_at && r.window ? (100 * r.compaction_at) / r.window : null;
    svg.children[2].setAttribute("width", mark == null ? "0" : "0.6");
    svg.children[2].setAttribute("x", mark == null ? "0" : Math.min(99.4, mark).toFixed(2));
    say(c[1].children[1], (s == null ? "window unknown" : part(s) + " of " + short(r.window)) + (t === "none" || t === "unavailable" ? "" : " \u00b7 " + t));
    say(c[2], count(r.used));
    say(c[3], r.growth == null ? DASH : "+" + short(r.growth));
    say(c[4], r.left == null ? DASH : r.left + " req");
    say(c[5], money(r.dollars));
    say(c[6], part(r.cached));
    say(c[7].children[0], r.last || r.state);
    say(c[7].children[1], ago(r.at) + (r.compactions ? " \u00b7 " + r.compactions + " compacted" : ""));
  };
  const pool = [];
  const draw = () => {
    due = false;
    const table = find("table"), body = find("rows");
    if (!table) return;
    arrange();
    say(find("count"), got ? count(order.length) : DASH);
    find("empty").hidden = rows.size > 0 || !got;
    body.style.height = order.length * ROW + "px";
    table.setAttribute("aria-rowcount", order.length + 1);
    const first = Math.max(0, Math.floor((table.scrollTop - 40) / ROW) - 2);
    const last = Math.min(order.length, first + Math.ceil(table.clientHeight / ROW) + 5);
    while (pool.length < last - first) { const a = build(); pool.push(a); }
    pool.forEach((a, i) => {
      const index = first + i;
      if (index < last) {
        fill(a, order[index], index);
        if (a.parentNode !== body) body.append(a);
      } else a.remove();
    });
  };
  const redraw = () => { if (!due) { due = true; requestAnimationFrame(draw); } };

  // ── what is told ────────────────────────────────────────────────────────────────────────────
  const state = (text, gone) => {
    const shown = find("state");
    if (!shown) return;
    say(shown, text);
    shown.classList.toggle("gone", !!gone);
  };
  const take = (told) => {
    got = true;
    if (told.whole) rows.clear();
    for (const r of told.rows) rows.set(r.source + "/" + r.id, r);
    for (const key of told.gone) rows.delete(key);
    redraw();
    const shown = document.querySelector("[data-key]");
    if (shown && !told.whole && told.rows.some((r) => r.source + "/" + r.id === shown.dataset.key)) refresh();
  };
  const listen = async () => {
    if (stream) stream.abort();
    const own = (stream = new AbortController());
    let pause = 1e3;
    while (!own.signal.aborted) {
      try {
        const answer = await fetch("/ullage/live", { headers: headers(), signal: own.signal });
        if (answer.status === 401) { rows.clear(); redraw(); state("token wanted", true); return; }
        if (answer.status === 503) {
          state("too many viewers", true);
          await new Promise((resolve) => setTimeout(resolve, 5e3));
          continue;
        }
        if (!answer.ok) throw new Error(answer.status);
        state("live");
        pause = 1e3;
        const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        let text = "";
        for (;;) {
          const { value, done } = await reader.read();
          if (done) break;
          text += value;
          const parts = text.split("\n\n");
          text = parts.pop();
          for (const one of parts) if (one.startsWith("data: ")) take(JSON.parse(one.slice(6)));
        }
      } catch (error) {
        if (own.signal.aborted) return;
      }
      state("not connected", true);
      await new Promise((resolve) => setTimeout(resolve, pause));
      pause = Math.min(pause * 2, 15e3);
    }
  };

  // ── pages ───────────────────────────────────────────────────────────────────────────────────
  let turn = 0, going = 0;
  const load = async (url) => { // null where another page was asked for meanwhile, or nobody answers
    const own = ++turn;
    going++;
    try {
      const answer = await fetch(url, { headers: { ...headers(), accept: "text/html", "hx-request": "true" } });
      const text = await answer.text();
      return own === turn ? { answer, text } : null;
    } catch {
      state("not connected", true);
      return null;
    } finally {
      going--;
    }
  };
  const show = async (url, push) => {
    const loaded = await load(url);
    if (!loaded) return;
    const { answer, text } = loaded;
    if (answer.status === 401) { if (push) location.assign(url); return; }
    const main = find("main");
    main.innerHTML = text; // from this server, every text in it escaped; scripts are not run
    if (push) { history.pushState({}, "", url); scrollTo(0, 0); main.focus({ preventScroll: true }); }
    window.htmx.process(main);
    begin();
    const mark = location.hash && document.getElementById(location.hash.slice(1));
    if (mark) { const d = mark.querySelector("details"); if (d) d.open = true; mark.scrollIntoView(); }
    const title = main.querySelector("h1");
    document.title = (title ? title.textContent + " \u00b7 " : "") + "ullage";
  };
  const refresh = async () => { // what somebody opened, wrote or reads stays
    const now = Date.now();
    if (now < fresh || document.hidden || going) return;
    const main = find("main");
    if (main.contains(document.activeElement) && document.activeElement !== main) return;
    if (find("answer").open || main.querySelector("details[open]")) return;
    fresh = now + 2e3;
    const top = scrollY;
    await show(location.href, false);
    scrollTo(0, top);
  };
  const chart = () => {
    const node = find("chart"), held = find("chart-data");
    if (plot) { plot.destroy(); plot = null; }
    if (!node || !held || !window.uPlot) return;
    const d = JSON.parse(held.textContent), css = getComputedStyle(document.documentElement);
    const color = (name) => css.getPropertyValue(name).trim();
    const line = (label, name, more) => ({ label, stroke: color(name), width: 2, points: { show: d.number.length < 60 }, value: (u, v) => count(v), ...more });
    const axis = { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line") } };
    const series = [{ label: "request", value: (u, v) => count(v) }, line("tokens", "--used", { fill: color("--used") + "22" }), line("read from cache", "--warn", { dash: [2, 4] }), line("window", "--mark", { dash: [8, 5], points: { show: false } })];
    const data = [d.number, d.tokens, d.cached, d.window];
    const axes = [{ ...axis, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500] }, { ...axis, size: 70, values: (u, v) => v.map(short) }];
    if (d.dollars.length) {
      series.push(line("cost so far", "--crit", { scale: "$", dash: [1, 3], value: (u, v) => money(v) }));
      data.push(d.dollars);
      axes.push({ ...axis, side: 1, scale: "$", grid: { show: false }, values: (u, v) => v.map((n) => "$" + n.toPrecision(2)) });
    }
    const marks = (u) => {
      const c = u.ctx;
      c.save();
      for (const [list, name, dash] of [[d.compacted, "--mark", [4, 4]], [d.lost, "--crit", [1, 3]]]) {
        c.strokeStyle = color(name);
        c.setLineDash(dash);
        for (const n of list) {
          const x = u.valToPos(n, "x", true);
          c.beginPath(); c.moveTo(x, u.bbox.top); c.lineTo(x, u.bbox.top + u.bbox.height); c.stroke();
        }
      }
      c.restore();
    };
    plot = new window.uPlot({ width: node.clientWidth, height: 280, scales: { x: { time: false } }, series, axes, hooks: { draw: [marks] } }, data, node);
  };
  const begin = () => {
    chart();
    if (find("table")) {
      pool.length = 0;
      at = -1;
      find("table").addEventListener("scroll", redraw, { passive: true });
      for (const id of ["filter", "sort"]) find(id).addEventListener("input", redraw);
      redraw();
    }
    const form = find("token");
    if (form) form.addEventListener("submit", (e) => {
      e.preventDefault();
      sessionStorage.setItem(KEY, find("secret").value);
      show(location.href, false);
      listen();
    });
  };
  document.addEventListener("click", (e) => {
    const link = e.target.closest("a[data-nav]"), share = e.target.closest("[data-share]"), file = e.target.closest("[data-download]");
    if (link && !e.ctrlKey && !e.metaKey && !e.shiftKey && e.button === 0) { e.preventDefault(); show(link.getAttribute("href"), true); }
    if (file && token()) { // a link carries no token
      e.preventDefault();
      fetch(file.href, { headers: headers() }).then((a) => a.blob()).then((b) => save(b, file.dataset.download));
    }
    if (share && plot) plot.ctx.canvas.toBlob((blob) => save(blob, "chart.png"));
  });
  const save = (blob, name) => {
    const a = make("a");
    a.href = URL.createObjectURL(blob);
    a.download = name;
    a.click();
    setTimeout(() => URL.revokeObjectURL(a.href), 1e4);
  };
  document.addEventListener("change", (e) => {
    const fate = e.target.dataset && e.target.dataset.fate;
    if (fate) for (const unit of document.querySelectorAll("section[data-fate]")) if (unit.dataset.fate === fate) unit.hidden = !e.target.checked;
  });
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    if (find("answer").open) return;
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName), table = find("table");
    if (e.key === "Escape" && typing) document.activeElement.blur();
    if (typing && !(e.key === "ArrowDown" && document.activeElement.id === "filter")) return;
    if (!table) { if (e.key === "Backspace" || e.key === "q") show("/", true); return; }
    if (e.key === "/") { e.preventDefault(); find("filter").focus(); return; }
    const steps = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: 8, PageUp: -8, Home: -1e9, End: 1e9 };
    if (e.key in steps && order.length) {
      e.preventDefault();
      at = Math.max(0, Math.min(order.length - 1, at + steps[e.key]));
      const top = at * ROW;
      if (top < table.scrollTop) table.scrollTop = top;
      if (top + ROW + 40 > table.scrollTop + table.clientHeight) table.scrollTop = top + ROW + 40 - table.clientHeight;
      if (typing) table.focus();
      draw();
    }
    if (e.key === "Enter" && order[at] && !/^(A|BUTTON|SUMMARY)$/.test(document.activeElement.tagName)) show("/ullage/conversation?of=" + encodeURIComponent(order[at].source + "/" + order[at].id), true);
  });
  document.addEventListener("htmx:config:request", (e) => Object.assign(e.detail.ctx.request.headers, headers()));
  document.addEventListener("htmx:after:swap", () => { const box = find("answer"); if (find("said").textContent.trim() && !box.open) box.showModal(); });
  window.addEventListener("popstate", () => show(location.href, false));
  window.addEventListener("resize", () => { if (plot) plot.setSize({ width: find("chart").clientWidth, height: 280 }); redraw(); });
  // a browser holds six connections to a server: a page that nobody sees gives its own back
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { if (stream) stream.abort(); } else listen();
  });
  addEventListener("DOMContentLoaded", () => {
    begin();
    if (find("token") && token()) show(location.href, false);
    listen();
    setInterval(redraw, 15e3);
  });
})();
