// The one script of all pages. Whatever it does is a convenience: every page works without it.
"use strict";
copyButtons();
focusBySlash();
for (const [id, enhance] of [["find", findPackages], ["ask", askQuestion]]) {
  const form = document.getElementById(id);
  if (form) enhance(form);
}

// "/" goes to the search box, as on many sites; Escape leaves it.
function focusBySlash() {
  const box = document.getElementById("q");
  if (!box) return;
  document.addEventListener("keydown", function (event) {
    const isTyping = event.target.closest("input, textarea, select, [contenteditable]");
    if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      box.focus();
      box.select();
    }
    if (event.key === "Escape" && event.target === box) box.blur();
  });
}

function copyButtons() {
  // Without scripts, or where the clipboard is not to be had, a click selects the line.
  if (navigator.clipboard) {
    document.querySelectorAll(".copy .what").forEach(function (what) {
      const code = what.nextElementSibling.querySelector("code"), button = document.createElement("button");
      button.type = "button";
      button.textContent = "Copy";
      button.setAttribute("aria-label", "Copy: " + what.textContent);
      button.addEventListener("click", async function () {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
        setTimeout(function () { button.textContent = "Copy"; }, 1500);
      });
      what.append(button);
    });
  }
}

// The form for packages of the start page: its results come into the page.
function findPackages(form) {
  const note = document.getElementById("note"), names = document.getElementById("names");
  const found = document.getElementById("found"), rows = found.querySelector("tbody");
  const rowsMax = 100, suggestDelayMilliseconds = 120, rpc = form.getAttribute("action");
  let waiting = 0, asked = "";
  form.elements.arg.addEventListener("input", function () {
    clearTimeout(waiting);
    const start = form.elements.arg.value;
    if (start === "" || start === asked) return;
    waiting = setTimeout(async function () {
      asked = start;
      try {
        const list = await (await fetch(rpc + "/v5/suggest?arg=" + encodeURIComponent(start))).json();
        if (asked !== start || !Array.isArray(list)) return;
        names.replaceChildren(...list.map(name => Object.assign(document.createElement("option"), { value: name })));
      } catch (_) { /* suggestions are a convenience: without them the form still works */ }
    }, suggestDelayMilliseconds);
  });
  function cell(text) { return Object.assign(document.createElement("td"), { textContent: text }); }
  form.addEventListener("submit", async function (event) {
    event.preventDefault();
    const begun = performance.now();
    note.hidden = false;
    try {
      const response = await fetch(rpc + "/v5/search?arg=" + encodeURIComponent(form.elements.arg.value));
      const reply = await response.json();
      const milliseconds = (performance.now() - begun).toFixed(1);
      const results = (reply.results || []).slice().sort((a, b) => b.Popularity - a.Popularity || b.NumVotes - a.NumVotes);
      rows.replaceChildren(...results.slice(0, rowsMax).map(function (package_) {
        const row = document.createElement("tr"), name = document.createElement("td"), link = document.createElement("a");
        link.href = rpc + "/v5/info?arg=" + encodeURIComponent(package_.Name);
        link.textContent = package_.Name;
        name.append(link);
        row.append(name, cell(package_.Version), cell(package_.NumVotes), cell(package_.Description || ""));
        return row;
      }));
      found.hidden = results.length === 0;
      note.textContent = reply.error || reply.detail || (reply.resultcount + (reply.resultcount === 1 ? " package" : " packages") + " in " + milliseconds + " ms" + (results.length > rowsMax ? "; the " + rowsMax + " most popular:" : ""));
    } catch (error) {
      found.hidden = true;
      note.textContent = error.message;
    }
  });
}

// The form of the page about the AUR's interface.
function askQuestion(form) {
  const status = document.getElementById("status");
  const answer = document.getElementById("answer"), code = answer.firstElementChild;
  const shownCharactersMax = 60000, rpc = form.getAttribute("action");
  function adapt() {
    const type = form.elements.type.value;
    document.getElementById("by-label").style.display = type === "search" ? "" : "none";
    form.elements.arg.required = type !== "msearch" && !(type === "search" && form.elements.by.value === "maintainer");
  }
  function path() {
    const type = form.elements.type.value, argument = form.elements.arg.value, encode = encodeURIComponent;
    if (type === "info") {
      const names = argument.trim().split(/\s+/);
      if (names.length > 1) return rpc + "/v5/info?" + names.map(name => "arg[]=" + encode(name)).join("&");
    }
    const by = type === "search" ? "by=" + form.elements.by.value + "&" : "";
    return rpc + "/v5/" + type + "?" + by + "arg=" + encode(argument);
  }
  form.addEventListener("change", adapt);
  form.addEventListener("submit", async function (event) {
    event.preventDefault();
    const target = path(), begun = performance.now();
    status.textContent = "GET " + target;
    answer.hidden = true;
    try {
      const response = await fetch(target), text = await response.text();
      const milliseconds = (performance.now() - begun).toFixed(1);
      status.textContent = "GET " + target + " → " + response.status + ", " + milliseconds + " ms, " + text.length + " characters";
      let shown = text;
      try { shown = JSON.stringify(JSON.parse(text), null, 1); } catch (_) { /* not JSON: shown as it came */ }
      code.textContent = shown.length > shownCharactersMax ? shown.slice(0, shownCharactersMax) + "\n… (cut here; the answer itself is complete)" : shown;
      answer.hidden = false;
      answer.scrollTop = 0;
    } catch (error) {
      status.textContent = "GET " + target + ": " + error.message;
    }
  });
  adapt();
}
