// Keeps the page up to date: asks for it again and takes over what differs, so
// that focus, selection and scroll position stay.
"use strict";

const pause = 2000;
const typing = 150;
const patience = 15000;

let timer, running;

// follow shows what is at an address now, or the answer to what is posted there, and goes on
// from there.
async function follow(address, posted) {
  clearTimeout(timer);
  running?.abort();
  const mine = running = new AbortController();
  const late = setTimeout(() => mine.abort(), patience);
  try {
    const answer = await fetch(address, { signal: mine.signal, ...posted && { method: "POST", body: posted } });
    if (answer.status === 503) return; // busy, but alive
    if (answer.status >= 500) throw new Error(answer.statusText);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (mine !== running) return;
    if (answer.redirected) history.replaceState(null, "", answer.url); // to what was sent
    for (const part of ["header", "main", "footer"]) morph(document.querySelector(part), page.querySelector(part));
    document.title = page.title;
    document.getElementById("lost").hidden = true;
    document.body.classList.remove("dead");
  } catch {
    if (mine !== running) return; // another took its place
    declareDead();
  } finally {
    clearTimeout(late);
    if (mine === running) later();
  }
}

// declareDead makes the page look like what it is: the past of a proxy that is gone.
// The next answer makes it all good, as it replaces what differs.
function declareDead() {
  const sign = document.getElementById("sign");
  sign.textContent = "No answer";
  sign.title = "";
  document.getElementById("seen").textContent = document.getElementById("time").textContent;
  document.getElementById("lost").hidden = false;
  document.body.classList.add("dead");
}

function later() {
  clearTimeout(timer);
  const own = document.querySelector("[data-pause]")?.dataset.pause; // of a page that is big
  if (!document.hidden) timer = setTimeout(follow, own ?? pause, location.href);
}

// morph makes an element like another one and touches only what differs. What
// people opened, closed or typed stays as they left it.
function morph(old, now) {
  for (const { name } of [...old.attributes]) {
    if (!now.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const { name, value } of now.attributes) {
    if (old.getAttribute(name) !== value && name !== "open") old.setAttribute(name, value);
  }
  const known = new Map();
  for (const child of old.children) if (child.id) known.set(child.id, child);
  let at = old.firstChild;
  for (const child of [...now.childNodes]) {
    const same = child.id ? known.get(child.id) : alike(at, child) ? at : null;
    known.delete(child.id); // if two have it, the second is another one
    if (!same) {
      old.insertBefore(document.importNode(child, true), at);
      continue;
    }
    if (same === at) at = at.nextSibling;
    else old.insertBefore(same, at);
    if (same.nodeType === Node.ELEMENT_NODE) morph(same, child);
    else if (same.data !== child.data) same.data = child.data;
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

// alike reports whether one node can be morphed into the other.
function alike(old, now) {
  return old && !old.id && old.nodeType === now.nodeType && old.nodeName === now.nodeName;
}

// Search while the user types.
let typed;
document.addEventListener("input", event => {
  const form = event.target.form;
  if (form?.id !== "search") return;
  clearTimeout(typed);
  typed = setTimeout(() => {
    const query = new URLSearchParams(new FormData(form));
    for (const [name, value] of [...query]) if (!value) query.delete(name);
    const address = query.size ? "/?" + query : "/";
    history.replaceState(null, "", address);
    follow(address);
  }, typing);
});

// Send a connection, and wait for its answer.
document.addEventListener("submit", event => {
  const form = event.target;
  if (!form.matches(".send")) return;
  event.preventDefault();
  const button = form.querySelector("button");
  button.disabled = true; // until the answer replaces it
  button.textContent = "Sending…";
  follow(form.action, new URLSearchParams(new FormData(form)));
});

document.addEventListener("keydown", event => {
  const search = document.querySelector("#search input");
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || !search || event.target.matches("input")) return;
  event.preventDefault();
  search.focus();
  search.select();
});

document.addEventListener("visibilitychange", () => document.hidden ? later() : follow(location.href));
later();
