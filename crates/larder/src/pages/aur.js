"use strict";
(function () {
  const form = document.getElementById("ask"), status = document.getElementById("status");
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
})();
