// The ollama library of npm.

import { Ollama } from "ollama";
import { KEY, KEYED_URL, MODEL, TOO_LONG, URL, WEATHER, described, run, user } from "./common.mjs";

const client = new Ollama({ host: URL });

async function answer(text, options = {}) {
  const reply = await client.chat({ model: MODEL, messages: user(text), ...options });
  return { text: reply.message.content, finish: reply.done_reason };
}

async function pieces(text, options = {}) {
  const parts = [];
  let error = null;
  try {
    for await (const part of await client.chat({ model: MODEL, messages: user(text), stream: true, ...options }))
      parts.push(part);
  } catch (problem) {
    error = described(problem);
  }
  const finish = parts.filter((part) => part.done_reason).map((part) => part.done_reason);
  return { text: parts.map((part) => part.message.content).join(""), n: parts.length, finish, error };
}

async function tools() {
  const reply = await client.chat({ model: MODEL, messages: user("call the weather"), tools: [WEATHER] });
  return reply.message.tool_calls.map((call) => call.function);
}

async function pull() {
  const statuses = [];
  for await (const part of await client.pull({ model: MODEL, stream: true })) statuses.push(part.status);
  return statuses;
}

const withKey = (key) =>
  new Ollama({ host: KEYED_URL, headers: { Authorization: `Bearer ${key}` } })
    .chat({ model: MODEL, messages: user("say hello") })
    .then((reply) => reply.message.content);

await run({
  chat: () => answer("say hello"),
  stream: () => pieces("say hello"),
  tools,
  too_long: () => answer(TOO_LONG),
  broken: () => pieces("break"),
  wrong_key: () => withKey("wrong"),
  right_key: () => withKey(KEY),
  embeddings: async () => (await client.embed({ model: MODEL, input: ["hello", "you"] })).embeddings.length,
  unusual: async () => ({ whole: (await answer("unusual")).text, streamed: (await pieces("unusual")).text }),
  generate: async () => (await client.generate({ model: MODEL, prompt: "say hello" })).response,
  list: async () => (await client.list()).models.map((model) => model.name),
  show: async () => (await client.show({ model: MODEL })).capabilities,
  version: async () => (await client.version()).version,
  pull,
});
