"use strict";
(function () {
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
  const form = document.getElementById("find");
  if (!form) return;
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
})();
