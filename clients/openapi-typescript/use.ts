// A program on the types that openapi-typescript makes of /openapi.json: an article, an upload, actions, the feed of changes.
//
//     node built/use.js URL TOKEN FILE
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { basename } from "node:path";
import createClient from "openapi-fetch";
import type { components, paths } from "./larder.js";

type Change = components["schemas"]["Change"];

const [url, token, file] = process.argv.slice(2) as [string, string, string];
const headers = { Accept: "application/json, application/vnd.pypi.simple.v1+json;q=0.9" };
const them = createClient<paths>({ baseUrl: url, headers });
const us = createClient<paths>({ baseUrl: url, headers: { ...headers, Authorization: `Bearer ${token}` } });

/** Writes a version of an article, made from `version`. */
function write(client: typeof us, version: number, text: string) {
  return client.POST("/article/{article}/{version}", {
    params: { path: { article: "guide/start", version } },
    body: text,
    bodySerializer: (text) => text,
    headers: { "Content-Type": "text/markdown" },
  });
}

// An article: made, read, changed on the version that was read, and refused on an older one.
const first = await write(us, 0, "# Start\n");
assert.equal(first.data?.version, 1);
const path = { article: "guide/start" };
const read = await them.GET("/article/{article}", { params: { path }, parseAs: "text" });
assert.equal(read.data, "# Start\n");
const version = Number(read.response.headers.get("X-Article-Version"));
const second = await write(us, version, "# Start here\n");
assert.equal(second.data?.title, "Start here");
const late = await write(us, version, "# Begin\n");
assert.equal(late.error?.status, 409);
const stranger = await write(them, 2, "x");
assert.equal(stranger.response.status, 401);

// A file: uploaded, and on the page of its project.
const content = new Blob([await readFile(file)]);
const uploaded = await us.POST("/{user}/{index}/", {
  params: { path: { user: "team", index: "dev" } },
  body: { ":action": "file_upload", name: "larder-app", version: "1.0", content: basename(file) },
  bodySerializer: ({ content: name, ...fields }) => {
    const form = new FormData();
    for (const [field, value] of Object.entries(fields)) form.set(field, value);
    form.set("content", content, name);
    return form;
  },
});
assert.equal(uploaded.response.status, 200);
const project = await them.GET("/{user}/{index}/{project}", {
  params: { path: { user: "team", index: "dev", project: "larder-app" } },
});
assert.deepEqual(Object.keys(project.data?.result as object), ["1.0"]);
const missing = await them.GET("/{user}/{index}/{project}", {
  params: { path: { user: "team", index: "dev", project: "larder-nothing" } },
});
assert.equal(missing.response.status, 404);

// Actions: one, then several.
const hello = await them.POST("/actions", { body: { actions: { "example.hello_world": {} } } });
assert.equal(hello.data, "Hello world!");
const several = await them.POST("/actions", {
  body: { actions: { "article.get_version": { name: "guide/start" }, "example.fibonacci": { n: 10 } } },
});
const results = several.data as Record<string, { result: { value?: number; version?: number } }>;
assert.equal(results["example.fibonacci"]?.result.value, 55);
assert.equal(results["article.get_version"]?.result.version, 2);

// The feed: every change of an article, in parts of one.
async function changesSince(since: string): Promise<Change[]> {
  const query = { surface: "articles", since, limit: 1 } as const;
  const { data } = await us.GET("/changes", { params: { query }, parseAs: "text" });
  return String(data).trimEnd().split("\n").map((line) => JSON.parse(line) as Change);
}
const seen: string[] = [];
for (let since: string | undefined = "0"; since; ) {
  const lines = await changesSince(since);
  const last = lines.pop();
  seen.push(...lines.map((change) => `${change.kind} ${change.name} ${change.version}`));
  since = last?.more ? last.next : undefined;
}
assert.deepEqual(seen, ["added guide/start 1", "changed guide/start 2"]);
console.log("used");
