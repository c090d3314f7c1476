// The page of `kubectl hibernate ui`. HTML comes from the program, rendered and escaped; this module shows it, keeps the
// visible rows as they are on the hub, and opens dialogs.

const TOKEN = "token";
const HUB = "hub";
/** Between two polite announcements, in ms. */
const QUIET = 5000;
/** Between two refreshes of the activity, in ms. */
const REFRESH = 2000;
/** From so many targets on, a person types their number. */
const COUNTED = 11;
/** Bytes of the IDs that a tab follows. */
const MAX_IDS = 60000;
const GONE = "The program does not answer: start kubectl hibernate ui again.";

const policy = globalThis.trustedTypes?.createPolicy("page", { createHTML: (html) => html }) ?? { createHTML: (html) => html };
const byId = (id) => document.getElementById(id);
const [main, dialog, check, submit] = [byId("main"), byId("dialog"), byId("dialog-check"), byId("dialog-do")];

/** The filter of the fleet, and the IDs of the rows that are checked. */
let filter = {};
const chosen = new Set();
/** Counts navigations: an answer to an older one is dropped. */
let navigation = 0;
let live = new AbortController();

const VERBS = {
  hibernate: { title: "Hibernate", fields: ["reason", "until", "for"] },
  resume: { title: "Resume", fields: ["reason"] },
  hold: { title: "Hold awake", fields: ["reason", "until", "for"] },
  skip: { title: "Skip the next sleep", fields: [] },
  plan: { title: "Plan", fields: [] },
};

class Refused extends Error {}

/** Sends a request of this tab. */
async function send(path, body, signal) {
  const headers = { "Content-Type": "application/json", Authorization: `Bearer ${sessionStorage.getItem(TOKEN) ?? ""}` };
  const answer = await fetch(path, { method: "POST", headers, body: JSON.stringify(body), signal });
  if (!answer.ok) throw new Refused(await answer.text());
  return answer;
}

/** The one place where HTML is parsed. */
function parsed(html) {
  const template = document.createElement("template");
  template.innerHTML = policy.createHTML(html);
  template.content.querySelectorAll("time").forEach(zoned);
  return template.content;
}

/** A moment in the zone of the viewer, which is named. */
function zoned(time) {
  const at = new Date(time.dateTime);
  if (Number.isNaN(at.getTime())) return;
  const text = at.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
  const zone = new Intl.DateTimeFormat().resolvedOptions().timeZone;
  time.title = `${text} ${zone}`;
  if ("absolute" in time.dataset) time.textContent = time.title;
}

function line(id, text) {
  const into = byId(id);
  if (into.textContent !== text) into.textContent = text;
  into.hidden = text === "";
}

const why = (error) => (error instanceof Refused ? error.message : GONE);
const fail = (error) => line("error", why(error));

function failures(texts) {
  const list = byId("failures");
  if (list.childElementCount === texts.length && [...list.children].every((one, at) => one.textContent === texts[at])) return;
  list.replaceChildren(...texts.map((text) => Object.assign(document.createElement("li"), { textContent: text })));
  list.hidden = texts.length === 0;
}

/** Announces what has happened, at most once in five seconds. */
const announce = (() => {
  let waiting = [];
  let timer = null;
  return (text) => {
    waiting.push(text);
    timer ??= setTimeout(() => {
      const [first] = waiting;
      byId("polite").textContent = waiting.length === 1 ? first : `${first}, and ${waiting.length - 1} more changes`;
      waiting = [];
      timer = null;
    }, QUIET);
  };
})();

/** Where the focus is, to find the same place in new HTML. */
function place() {
  const at = document.activeElement;
  if (!main.contains(at) || at === main) return null;
  const row = at.closest("tr[data-id]")?.dataset.id;
  const within = row ? `tr[data-id="${CSS.escape(row)}"] ` : "";
  for (const name of ["id", "data-sort", "data-verb", "name"]) {
    if (at.getAttribute(name)) return `${within}[${name}="${CSS.escape(at.getAttribute(name))}"]`;
  }
  return within ? `${within}a` : "h2";
}

/** Shows a view, unless another one was opened in the meantime. */
async function show(path, body) {
  const own = ++navigation;
  live.abort();
  try {
    const html = await (await send(path, body)).text();
    if (own !== navigation) return;
    const focus = place();
    main.replaceChildren(parsed(html));
    main.querySelectorAll("input[name=target]").forEach((box) => (box.checked = chosen.has(box.closest("tr").dataset.id)));
    selection();
    const found = focus && main.querySelector(focus);
    if (focus) (found && !found.disabled && found.tabIndex >= 0 ? found : main).focus();
    line("error", "");
    follow();
    plan();
  } catch (error) {
    if (own !== navigation) return;
    fail(error);
    follow(); // what is still shown
    plan();
  }
}

/** The plan of a target takes the program longer than its fields. */
async function plan() {
  const into = byId("plan");
  if (!into || into.querySelector("pre")) return;
  const { signal } = live;
  try {
    print(await (await send("/act", { verb: "plan", ids: [into.dataset.id] }, signal)).json(), into);
  } catch (error) {
    if (!signal.aborted) busy(why(error), into);
  }
}

/** Refetches the tables of the activity until they match the last message. */
let activity = 0;
let refreshing = null;
async function refreshActivity(tables) {
  if (refreshing === tables) return;
  refreshing = tables;
  const { signal } = live;
  try {
    while (tables.isConnected && Number(tables.dataset.activity) !== activity) {
      const fresh = parsed(await (await send("/activity", { refresh: true }, signal)).text()).querySelector("#activity");
      const bodies = fresh.querySelectorAll("tbody");
      const old = [...tables.querySelectorAll("tbody")];
      if (old.some((body, at) => body.textContent !== bodies[at].textContent)) announce("Activity updated");
      old.forEach((body, at) => body.replaceChildren(...bodies[at].children));
      tables.dataset.activity = fresh.dataset.activity;
      line("error", "");
      await new Promise((done) => setTimeout(done, REFRESH));
    }
  } catch (error) {
    if (!signal.aborted) fail(error);
  }
  if (refreshing === tables) refreshing = null;
}

const fleet = () => show("/fleet", filter);

/** Follows the rows that are shown, and the state of the hub, until another view is shown. */
async function follow() {
  const own = (live = new AbortController());
  const rows = new Map([...main.querySelectorAll("tr[data-id]")].map((row) => [row.dataset.id, row]));
  const ids = [...rows.keys()];
  while (JSON.stringify(ids).length > MAX_IDS) ids.pop();
  let pause = 500;
  while (!own.signal.aborted) {
    try {
      const answer = await send("/live", { ids }, own.signal);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let text = "", first = true; ; ) {
        const { value, done } = await reader.read();
        if (done || own.signal.aborted) break;
        const lines = (text + value).split("\n");
        text = lines.pop();
        for (const message of lines) {
          apply(rows, JSON.parse(message), first);
          first = false;
        }
        if (pause > 500) line("error", "");
        pause = 500;
      }
    } catch (error) {
      if (own.signal.aborted) return;
      // A connection may end; a program that has ended does not come back.
      if (pause > 500) fail(error);
    }
    await new Promise((done) => setTimeout(done, pause));
    pause = Math.min(2 * pause, 30000);
  }
}

/** Patches cells; rows stay where they are, and so does the focus. The first message has every row. */
function apply(rows, message, isFirst) {
  line("outage", message.outage === "" ? "" : `The hub does not answer ${message.outage}`);
  failures(message.failures);
  const list = byId("list");
  for (const change of message.rows ?? []) {
    const row = rows.get(change.id);
    if (!row) continue;
    const name = row.querySelector("th");
    const state = row.querySelector(".state");
    const before = state.textContent;
    if (change.tone === "gone") {
      state.textContent = "Deleted";
      chosen.delete(change.id);
      selection();
    } else {
      const cells = row.querySelectorAll("th, td:not(:has(input))");
      change.cells.forEach((cell, at) => {
        const into = cells[at].querySelector("a, time") ?? cells[at];
        if (into.textContent !== cell.text) into.textContent = cell.text;
        if (cell.at && into.dateTime !== cell.at) {
          into.dateTime = cell.at;
          zoned(into);
        }
      });
    }
    if (row.className !== change.tone) row.className = change.tone;
    if (!isFirst && before !== state.textContent) announce(`${name.textContent} is ${state.textContent}`);
  }
  activity = message.activity;
  if (byId("activity")) refreshActivity(byId("activity"));
  if (!list || Number(list.dataset.revision) === message.revision) return;
  // Rows do not move under a person's hand; an empty list has none.
  if (rows.size === 0 && !main.contains(document.activeElement)) fleet();
  else byId("reload").hidden = false;
}

function selection() {
  if (!byId("selected")) return;
  byId("selected").textContent = `${chosen.size} selected`;
  main.querySelectorAll(".actions button").forEach((button) => (button.disabled = chosen.size === 0));
}

/** What the commands have printed, with their command lines. */
function print(results, into = check) {
  const shown = results.flatMap(({ command, code, output }) => {
    const head = Object.assign(document.createElement("p"), { className: "command" });
    head.append(Object.assign(document.createElement("code"), { textContent: command }));
    const text = code === 0 ? output : `${output}(exit code ${code})`;
    return [head, Object.assign(document.createElement("pre"), { textContent: text, className: code === 0 ? "" : "failed", tabIndex: 0 })];
  });
  into.replaceChildren(...shown);
}

const busy = (text, into = check) => into.replaceChildren(Object.assign(document.createElement("p"), { textContent: text }));

/** The request of the dialog, and what ends questions about an older one. */
let action = null;
let asking = new AbortController();
let typing = null;

/** Ends a question that is under way: its answer is about another request. */
function stop() {
  clearTimeout(typing);
  asking.abort();
  submit.disabled = true;
}

/** Asks the hub: the plan of a sleep, and the change itself as a server dry run. */
async function dryRun() {
  stop();
  const own = (asking = new AbortController());
  const judged = action.verb === "plan" ? action : { ...action, dryRun: true };
  const questions = [judged];
  if (action.verb === "hibernate") questions.unshift({ verb: "plan", ids: action.ids, until: action.until, for: action.for });
  busy("Asking the hub…");
  try {
    const results = [];
    for (const question of questions) results.push(await (await send("/act", question, own.signal)).json());
    if (own.signal.aborted) return;
    print(results.flat());
    submit.disabled = results.at(-1).some(({ code }) => code !== 0);
  } catch (error) {
    if (!own.signal.aborted) busy(why(error));
  }
}

function open(verb, ids) {
  const name = (id) => id.replace(/^([^./]*)[^/]*\/([^/]*)\/(.*)$/, (_, kind, namespace, name) => `${kind}/${name}${namespace && ` in ${namespace}`}`);
  action = { verb, ids, reason: "", until: "", for: verb === "hold" ? "4h" : "" };
  byId("dialog-title").textContent = VERBS[verb].title;
  const more = ids.length > 10 ? ` and ${ids.length - 10} more` : "";
  byId("dialog-targets").textContent = `${ids.length} selected: ${ids.slice(0, 10).map(name).join(", ")}${more}`;
  const fields = [...VERBS[verb].fields, ...(verb !== "plan" && ids.length >= COUNTED ? ["confirmed"] : [])];
  dialog.querySelectorAll(".field").forEach((field) => {
    field.hidden = !fields.includes(field.dataset.for);
    field.querySelector("input").value = action[field.dataset.for] ?? "";
  });
  submit.hidden = verb === "plan";
  submit.textContent = `${VERBS[verb].title}: ${ids.length}`;
  dialog.showModal();
  dryRun();
}

dialog.addEventListener("close", stop);
dialog.addEventListener("input", ({ target }) => {
  if (target.name === "confirmed") {
    action.confirmed = Number(target.value) || 0;
    return;
  }
  action[target.name] = target.value;
  stop();
  typing = setTimeout(dryRun, 600);
});

dialog.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (submit.disabled || submit.hidden) return;
  stop();
  const own = (asking = new AbortController());
  const sent = { ...action };
  busy("Writing…");
  try {
    // Not aborted: a change goes on when its dialog is closed.
    const results = await (await send("/act", sent)).json();
    announce(results.every(({ code }) => code === 0) ? `${VERBS[sent.verb].title}: requested` : `${VERBS[sent.verb].title}: refused`);
    if (!own.signal.aborted) print(results);
  } catch (error) {
    if (own.signal.aborted) return;
    busy(why(error));
    submit.disabled = !(error instanceof Refused);
  }
});

byId("dialog-cancel").addEventListener("click", () => dialog.close());

main.addEventListener("change", ({ target }) => {
  const boxes = target.id === "all" ? [...main.querySelectorAll("input[name=target]")] : [target];
  for (const box of boxes.filter(({ name }) => name === "target")) {
    box.checked = target.checked;
    chosen[target.checked ? "add" : "delete"](box.closest("tr").dataset.id);
  }
  selection();
});

main.addEventListener("submit", (event) => {
  event.preventDefault();
  const fields = Object.fromEntries(new FormData(event.target));
  if (event.target.id === "filter") {
    filter = { ...filter, ...fields, page: 0 };
    fleet();
  } else {
    show("/savings", fields);
  }
});

main.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  const { sort, page, verb } = button.dataset;
  if (sort) {
    filter = { ...filter, sort, descending: filter.sort === sort && !filter.descending, page: 0 };
    fleet();
  } else if (page) {
    filter = { ...filter, page: Number(page) };
    fleet();
  } else if (button.id === "reload") {
    fleet();
  } else if (verb) {
    const one = button.closest("[data-id]")?.dataset.id;
    open(verb, one ? [one] : [...chosen]);
  }
});

/** Shows the view that the fragment of the URL names. */
async function route() {
  const [view, rest] = location.hash.slice(1).split("=", 2);
  document.querySelectorAll("nav a").forEach((link) => {
    if (link.hash === `#${view}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  });
  if (view === "target" && rest) await show("/target", { id: decodeURIComponent(rest) });
  else if (["calendar", "activity", "savings"].includes(view)) await show(`/${view}`, {});
  else await fleet();
}

async function begin() {
  const [name, code] = location.hash.slice(1).split("=", 2);
  if (name === "code") {
    history.replaceState(null, "", "#fleet");
    try {
      const { token, hub, context } = await (await send("/session", { code })).json();
      sessionStorage.setItem(TOKEN, token);
      sessionStorage.setItem(HUB, context ? `${context} (${hub})` : hub);
    } catch (error) {
      fail(error);
    }
  }
  if (!sessionStorage.getItem(TOKEN)) return;
  byId("hub").textContent = sessionStorage.getItem(HUB);
  document.title = `kubectl hibernate: ${sessionStorage.getItem(HUB)}`;
  await route();
}

addEventListener("hashchange", async () => {
  if (location.hash.startsWith("#code=")) return begin();
  await route();
  main.focus();
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
await begin();
