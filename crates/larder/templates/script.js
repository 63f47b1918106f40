// The one script of all pages. Whatever it does is a convenience: every page works without it.
"use strict";
copyButtons();
focusBySlash();
suggestAsOneTypes();
timesInWords();
sortTables();
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

// "3 hours ago" instead of the time, which stays in the title: only the browser knows how old a page that was kept is.
function timesInWords() {
  const units = [["year", 31557600], ["month", 2629800], ["day", 86400], ["hour", 3600], ["minute", 60]];
  const words = new Intl.RelativeTimeFormat("en");
  // The times of long lists are only what they say.
  for (const time of document.querySelectorAll(".packages time")) time.title = time.textContent;
  const times = Array.from(document.querySelectorAll("time.ago, .packages time"), time => ({ time, shown: time.textContent, at: Date.parse((time.dateTime || time.textContent).replace(" ", "T")) }));
  function inWords(at) {
    const seconds = (at - Date.now()) / 1000, unit = units.find(([, length]) => Math.abs(seconds) >= length);
    return unit ? words.format(Math.trunc(seconds / unit[1]), unit[0]) : "just now";
  }
  function say() { for (const { time, at } of times) if (!Number.isNaN(at)) time.textContent = inWords(at); }
  if (times.length === 0) return;
  say();
  setInterval(say, 60000);
  // Paper does not know when it is read.
  addEventListener("beforeprint", function () { for (const { time, shown } of times) time.textContent = shown; });
  addEventListener("afterprint", say);
}

// Tables whose lines can be put into another order: the head of a column becomes a button. Only the lines of the page are sorted.
function sortTables() {
  const linesMax = 5000, order = new Intl.Collator("en", { numeric: true });
  // What a cell is sorted by: what it says it is, or its time, or its words.
  function key(cell) {
    const time = cell.querySelector("time");
    return cell.dataset.sort || (time && time.dateTime) || cell.textContent.trim();
  }
  document.querySelectorAll("table.sorts").forEach(function (table) {
    const body = table.tBodies[0], heads = Array.from(table.tHead.rows[0].cells);
    if (body.rows.length < 2 || body.rows.length > linesMax) return;
    function sortBy(head, column) {
      const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      const lines = Array.from(body.rows, row => ({ row, key: key(row.cells[column]) }));
      // Lines without a value come last either way.
      lines.sort((a, b) => (a.key === "") - (b.key === "") || sign * order.compare(a.key, b.key));
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      body.append(...lines.map(line => line.row));
    }
    heads.forEach(function (head, column) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => sortBy(head, column));
    });
  });
}

function copyButtons() {
  // Without scripts, or where the clipboard is not to be had, a click selects the line.
  if (!navigator.clipboard) return;
  function button(code, label) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.setAttribute("aria-label", label);
    button.addEventListener("click", async function () {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
      setTimeout(function () { button.textContent = "Copy"; }, 1500);
    });
    return button;
  }
  document.querySelectorAll(".copy .what").forEach(function (what) {
    what.append(button(what.nextElementSibling.querySelector("code"), "Copy: " + what.textContent));
  });
  document.querySelectorAll(".digest > code").forEach(function (code) {
    code.after(" ", button(code, "Copy the digest"));
  });
  document.querySelectorAll(".written pre > code").forEach(function (code) {
    code.parentElement.append(button(code, "Copy this code"));
  });
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
        link.href = rpc.replace(/rpc$/, "packages/") + encodeURIComponent(package_.Name);
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

// What the search box would find, as one types: arrows choose, Enter goes there, Escape closes.
function suggestAsOneTypes() {
  const box = document.getElementById("q");
  if (!box) return;
  const delayMilliseconds = 80, list = document.createElement("div"), said = document.createElement("span");
  let waiting = 0, asked = "", chosen = -1;
  Object.assign(list, { id: "suggestions", className: "suggestions", hidden: true });
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Suggestions");
  said.className = "hidden";
  said.setAttribute("role", "status");
  box.form.append(list, said);
  for (const [name, value] of [["role", "combobox"], ["aria-autocomplete", "list"], ["aria-controls", list.id], ["aria-expanded", "false"]]) {
    box.setAttribute(name, value);
  }
  function options() { return Array.from(list.querySelectorAll("[role=option]")); }
  function show(isShown) {
    list.hidden = !isShown;
    box.setAttribute("aria-expanded", String(isShown));
    if (!isShown) choose(-1);
  }
  function choose(at) {
    chosen = at;
    options().forEach((option, place) => option.setAttribute("aria-selected", String(place === at)));
    const option = options()[at];
    if (option) {
      box.setAttribute("aria-activedescendant", option.id);
      option.scrollIntoView({ block: "nearest" });
    } else {
      box.removeAttribute("aria-activedescendant");
    }
  }
  function element(tag, className, text) {
    return Object.assign(document.createElement(tag), { className, textContent: text });
  }
  function fill(groups) {
    let number = 0;
    list.replaceChildren(...groups.map(function (group) {
      const part = document.createElement("div");
      part.setAttribute("role", "group");
      part.setAttribute("aria-label", group.title);
      const title = element("p", "what", group.title);
      title.setAttribute("aria-hidden", "true");
      part.append(title, ...group.items.map(function (item) {
        const option = element("div", "option", "");
        option.id = "suggestion-" + number++;
        option.dataset.url = item.url;
        option.setAttribute("role", "option");
        option.setAttribute("aria-selected", "false");
        option.append(element("b", "", item.name), " ", element("span", "mono dim", item.note), element("span", "text", item.text));
        return option;
      }));
      return part;
    }));
    chosen = -1;
    box.removeAttribute("aria-activedescendant");
    said.textContent = number === 0 ? "No suggestions" : number + " suggestions";
    show(number > 0);
  }
  async function ask() {
    const text = box.value.trim();
    if (text === asked) return show(text !== "" && options().length > 0);
    asked = text;
    if (text === "") return show(false);
    try {
      const answer = await fetch(box.form.getAttribute("action") + "/suggest?q=" + encodeURIComponent(text));
      const found = await answer.json();
      if (asked === text && document.activeElement === box) fill(found.groups || []);
    } catch (_) { /* suggestions are a convenience: Enter asks the page */ }
  }
  box.addEventListener("input", function () {
    clearTimeout(waiting);
    waiting = setTimeout(ask, delayMilliseconds);
  });
  box.addEventListener("keydown", function (event) {
    const all = options();
    if (event.key === "Escape" && !list.hidden) {
      event.preventDefault();
      event.stopImmediatePropagation();
      show(false);
    } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && all.length > 0) {
      event.preventDefault();
      if (list.hidden) show(true);
      const places = all.length + 1, step = event.key === "ArrowDown" ? 1 : -1;
      choose((chosen + 1 + step + places) % places - 1);
    } else if (event.key === "Enter" && chosen >= 0 && !list.hidden) {
      event.preventDefault();
      location.assign(all[chosen].dataset.url);
    }
  });
  list.addEventListener("mousedown", function (event) {
    const option = event.target.closest("[role=option]");
    event.preventDefault();
    if (option && event.button === 0) location.assign(option.dataset.url);
  });
  box.addEventListener("blur", () => show(false));
}
