// Continue's adapters: the same server as "openai", as "llama.cpp" and as "ollama".

import { constructLlmApi } from "@continuedev/openai-adapters";
import { KEY, KEYED_URL, MODEL, TOO_LONG, URL, WEATHER, described, run, user } from "./common.mjs";

const api = (provider, apiBase, apiKey = "none") => constructLlmApi({ provider, apiBase, apiKey, model: MODEL });
const openai = api("openai", `${URL}/v1`);
const signal = new AbortController().signal;

async function answer(text, adapter = openai) {
  const reply = await adapter.chatCompletionNonStream({ model: MODEL, messages: user(text), stream: false }, signal);
  return { text: reply.choices[0].message.content, finish: reply.choices[0].finish_reason };
}

async function pieces(text, adapter = openai, options = {}) {
  const texts = [], finish = [], usage = [], calls = [];
  let error = null;
  try {
    const request = { model: MODEL, messages: user(text), stream: true, ...options };
    for await (const chunk of adapter.chatCompletionStream(request, signal)) {
      if (chunk.usage) usage.push(chunk.usage);
      for (const choice of chunk.choices) {
        if (choice.delta.content) texts.push(choice.delta.content);
        if (choice.finish_reason) finish.push(choice.finish_reason);
        calls.push(...(choice.delta.tool_calls ?? []));
      }
    }
  } catch (problem) {
    error = described(problem);
  }
  return { text: texts.join(""), n: texts.length, finish, usage, calls, error };
}

async function tools() {
  const { calls } = await pieces("call the weather", openai, { tools: [WEATHER] });
  const json = calls.map((call) => call.function?.arguments ?? "").join("");
  return [{ id: calls[0].id, name: calls[0].function.name, arguments: json }];
}

await run({
  models: async () => (await openai.list()).map((model) => model.id),
  chat: () => answer("say hello"),
  stream: () => pieces("say hello"),
  usage: () => pieces("say hello"),
  tools,
  too_long: () => answer(TOO_LONG),
  broken: () => pieces("break"),
  wrong_key: () => answer("say hello", api("openai", `${KEYED_URL}/v1`, "wrong")),
  right_key: async () => (await answer("say hello", api("openai", `${KEYED_URL}/v1`, KEY))).text,
  embeddings: async () => (await openai.embed({ model: MODEL, input: ["hello", "you"] })).data.length,
  unusual: async () => ({ whole: (await answer("unusual")).text, streamed: (await pieces("unusual")).text }),
  llama_cpp: () => pieces("say hello", api("llama.cpp", `${URL}/`)),
  ollama: () => pieces("say hello", api("ollama", URL)),
});
