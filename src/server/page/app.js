// The page of stet serve: sessions, chat, and what is kept of both. Texts are shown as text, never
// as markup; nothing is fetched from anywhere else.
"use strict";

const at = (id) => document.getElementById(id);
const state = { session: null, isNew: true, key: "", abort: null };
try { state.key = sessionStorage.getItem("stet-key") || ""; } catch { /* storage is off */ }

function element(tag, text, className) {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
}

function plural(count, word) {
    return `${count} ${word}${count === 1 ? "" : "s"}`;
}

function showTrouble(text) {
    at("trouble").textContent = text || "";
    at("trouble").hidden = !text;
}

function ask(label, value, type) {
    return new Promise((resolve) => {
        at("ask-label").textContent = label;
        at("ask-text").type = type || "text";
        at("ask-text").value = value;
        const dialog = at("ask");
        dialog.addEventListener("close", () => {
            resolve(dialog.returnValue === "ok" ? at("ask-text").value.trim() : "");
        }, { once: true });
        dialog.returnValue = "";
        dialog.showModal();
        at("ask-text").select();
    });
}

async function request(method, path, body, signal) {
    const headers = { "Content-Type": "application/json" };
    if (state.key) headers.Authorization = `Bearer ${state.key}`;
    const response = await fetch(path, {
        method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body),
    });
    if (response.ok) return response;
    let message = `${response.status} ${response.statusText}`;
    try { message = (await response.json()).error.message; } catch { /* no JSON */ }
    if (response.status === 401) at("key-button").hidden = false;
    throw Object.assign(new Error(message), { status: response.status });
}

async function call(method, path, body) {
    return (await request(method, path, body)).json();
}

const sessionPath = (name, action) =>
    `/v1/sessions/${encodeURIComponent(name)}${action ? "/" + action : ""}`;

function newName() {
    const part = crypto.getRandomValues(new Uint32Array(1))[0].toString(36).slice(0, 5);
    return `chat-${new Date().toISOString().slice(5, 10)}-${part}`;
}

function age(seconds) {
    const passed = Math.max(0, Date.now() / 1000 - seconds);
    for (const [unit, length] of [["day", 86400], ["hour", 3600], ["minute", 60]]) {
        if (passed >= length) return `${plural(Math.floor(passed / length), unit)} ago`;
    }
    return "just now";
}

async function loadSessions() {
    const { data } = await call("GET", "/v1/sessions");
    at("sessions").replaceChildren(...data.map((session) => {
        const button = element("button");
        button.append(element("span", session.id, "name"),
            element("span", `${plural(session.turns, "turn")}, ${age(session.used)}`, "sub"));
        button.setAttribute("aria-current", String(session.id === state.session));
        button.addEventListener("click", () => run(() => open(session.id)));
        const item = element("li");
        item.append(button);
        return item;
    }));
}

// One cell a page; many pages to a cell when there are too many to see.
function showStrip(session) {
    const pages = session ? session.pages : 0;
    const cells = Math.min(pages, 160);
    const made = [];
    for (let i = 0; i < cells; ++i) {
        const begin = Math.floor(i * pages / cells);
        const end = Math.floor((i + 1) * pages / cells);
        const cell = element("i");
        if (begin < session.shared_pages) cell.classList.add("shared");
        const tokens = [begin * session.page_tokens, Math.min(end * session.page_tokens, session.tokens)];
        if (session.history.some((turn) => turn.token_end > tokens[0] && turn.token_end <= tokens[1])) {
            cell.classList.add("end");
        }
        cell.title = `tokens ${tokens[0]} to ${tokens[1]}`;
        made.push(cell);
    }
    at("strip").replaceChildren(...made);
    at("facts").textContent = session
        ? `${plural(session.turns, "turn")}, ${plural(session.tokens, "token")}, ` +
          `${plural(pages, "page")} (${session.shared_pages} shared)`
        : "nothing said yet";
}

function addTurn(question) {
    const item = element("li");
    if (question !== null) item.append(element("div", question, "said user"));
    const answer = element("div", "", "said answer");
    const foot = element("div", undefined, "foot quiet");
    item.append(answer, foot);
    at("turns").append(item);
    item.scrollIntoView({ block: "end" });
    return { item, answer, foot };
}

function showTurn(turn, isLast) {
    const said = turn.messages.filter((message) => message.role === "user").map((m) => m.content);
    const { answer, foot } = addTurn(said.length ? said.join("\n") : null);
    answer.textContent = turn.messages.filter((message) => message.role === "assistant")
        .map((message) => message.content).join("\n") || (turn.messages.length ? "" : "(text without roles)");
    foot.append(element("span", `turn ${turn.number}, ${plural(turn.tokens, "token")}`));
    if (isLast) return;
    const back = element("button", "Back to here");
    back.addEventListener("click", () => run(() => rollback(turn.number)));
    foot.append(back);
}

async function open(name) {
    const session = await call("GET", sessionPath(name));
    state.session = name;
    state.isNew = false;
    at("name").textContent = name;
    at("reuse").textContent = "";
    at("turns").replaceChildren();
    session.history.forEach((turn, i) => showTurn(turn, i + 1 === session.history.length));
    showStrip(session);
    if (at("turns").lastElementChild) at("turns").lastElementChild.scrollIntoView({ block: "end" });
    for (const id of ["undo", "fork"]) at(id).disabled = session.turns === 0;
    at("remove").disabled = false;
    closeMenu();
    await loadSessions();
}

function begin() {
    state.session = newName();
    state.isNew = true;
    at("name").textContent = state.session;
    at("reuse").textContent = "";
    at("turns").replaceChildren();
    showStrip(null);
    for (const id of ["undo", "fork", "remove"]) at(id).disabled = true;
    closeMenu();
    at("text").focus();
}

async function rollback(number) {
    await call("POST", sessionPath(state.session, "rollback"), { turn: number });
    await open(state.session);
}

async function undo() {
    const session = await call("GET", sessionPath(state.session));
    const last = session.history.at(-1);
    await rollback(session.turns - 1);
    const said = last.messages.filter((message) => message.role === "user").map((m) => m.content);
    at("text").value = said.join("\n");
    at("text").focus();
}

async function fork() {
    const name = await ask("Name of the fork", `${state.session}-b`);
    if (!name) return;
    await call("POST", sessionPath(state.session, "fork"), { id: name });
    await open(name);
}

async function remove() {
    const name = state.session;
    if (await ask(`Type ${name} to remove it`, "") !== name) return;
    await call("DELETE", sessionPath(name));
    begin();
    await loadSessions();
}

async function* eventsOf(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let held = "";
    for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        held += value;
        const blocks = held.split("\n\n");
        held = blocks.pop();
        for (const block of blocks) {
            const data = block.split("\n").filter((line) => line.startsWith("data: "))
                .map((line) => line.slice(6)).join("\n");
            if (data === "[DONE]") return;
            if (data) yield JSON.parse(data);
        }
    }
}

function reuseText(stet) {
    let text = `reused ${stet.reused_tokens} of ${stet.reused_tokens + stet.computed_tokens} tokens`;
    if (stet.source !== "none") text += ` (${stet.source})`;
    if (stet.durable) text += `, saved in ${stet.commit_ms.toFixed(1)} ms`;
    return stet.reason ? `${text}; ${stet.reason}` : text;
}

async function send(text) {
    const { item, answer, foot } = addTurn(text);
    const abort = new AbortController();
    state.abort = abort;
    at("send").hidden = true;
    at("stop").hidden = false;
    let stet = null;
    try {
        const response = await request("POST", "/v1/chat/completions", {
            session_id: state.session, messages: [{ role: "user", content: text }], stream: true,
            stream_options: { include_usage: true },
        }, abort.signal);
        for await (const chunk of eventsOf(response)) {
            if (chunk.error) throw new Error(chunk.error.message);
            for (const choice of chunk.choices) answer.textContent += choice.delta.content || "";
            if (chunk.stet) stet = chunk.stet;
            item.scrollIntoView({ block: "end" });
        }
        await open(state.session);
        if (stet) at("reuse").textContent = reuseText(stet);
    } catch (error) {
        // Nothing was committed: the session is at the turn before.
        item.remove();
        at("text").value = text;
        if (error.name !== "AbortError") throw error;
    } finally {
        state.abort = null;
        at("send").hidden = false;
        at("stop").hidden = true;
    }
}

async function run(action) {
    if (state.abort !== null) return;
    showTrouble("");
    try {
        await action();
    } catch (error) {
        showTrouble(error.message);
    }
}

function closeMenu() {
    at("side").classList.remove("open");
    at("menu").setAttribute("aria-expanded", "false");
}

async function start() {
    begin();
    const { data } = await call("GET", "/v1/models");
    at("model").textContent = data[0].id;
    await loadSessions();
}

at("menu").addEventListener("click", () => {
    const isOpen = at("side").classList.toggle("open");
    at("menu").setAttribute("aria-expanded", String(isOpen));
});
at("new").addEventListener("click", () => run(async () => begin()));
at("undo").addEventListener("click", () => run(undo));
at("fork").addEventListener("click", () => run(fork));
at("remove").addEventListener("click", () => run(remove));
at("stop").addEventListener("click", () => { if (state.abort) state.abort.abort(); });
at("key-button").addEventListener("click", () => run(async () => {
    const key = await ask("API key", "", "password");
    if (!key) return;
    state.key = key;
    try { sessionStorage.setItem("stet-key", key); } catch { /* storage is off */ }
    await start();
}));
at("form").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = at("text").value.trim();
    if (!text || state.abort !== null) return;
    at("text").value = "";
    run(() => send(text));
});
at("text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        at("form").requestSubmit();
    }
});
run(start);
