// Vercel's AI SDK with its provider for servers that speak OpenAI's API.

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embedMany, generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import { CITY, KEY, KEYED_URL, MODEL, TOO_LONG, URL, described, run } from "./common.mjs";

const provider = (options = {}) =>
  createOpenAICompatible({ name: "localspec", baseURL: `${URL}/v1`, apiKey: "none", includeUsage: true, ...options });
const model = provider()(MODEL);
const weather = tool({
  description: "The weather of a city",
  inputSchema: jsonSchema(CITY),
  execute: async ({ city }) => `21 degrees in ${city}`,
});

async function answer(prompt, options = {}) {
  const reply = await generateText({ model, prompt, ...options });
  return { text: reply.text, finish: reply.finishReason };
}

async function pieces(prompt, options = {}) {
  const texts = [], finish = [], usage = [];
  let error = null;
  const stream = streamText({ model, prompt, maxRetries: 0, onError: () => {}, ...options });
  for await (const part of stream.fullStream) {
    if (part.type === "text-delta") texts.push(part.text);
    if (part.type === "finish") {
      finish.push(part.finishReason);
      usage.push({ prompt_tokens: part.totalUsage.inputTokens, completion_tokens: part.totalUsage.outputTokens });
    }
    if (part.type === "error") error = described(part.error);
  }
  return { text: texts.join(""), n: texts.length, finish, usage, error };
}

async function tools() {
  const reply = await generateText({ model, prompt: "call the weather", tools: { weather }, stopWhen: stepCountIs(1) });
  return reply.toolCalls.map((call) => ({ id: call.toolCallId, name: call.toolName, arguments: call.input }));
}

async function toolLoop() {
  const stream = streamText({ model, prompt: "call the weather", tools: { weather }, stopWhen: stepCountIs(3) });
  return await stream.text;
}

const withKey = (apiKey) =>
  answer("say hello", { model: provider({ baseURL: `${KEYED_URL}/v1`, apiKey })(MODEL), maxRetries: 0 });

await run({
  chat: () => answer("say hello"),
  stream: () => pieces("say hello"),
  usage: () => pieces("say hello"),
  tools,
  too_long: () => answer(TOO_LONG),
  busy: () => answer("busy ai sdk"),
  broken: () => pieces("break"),
  wrong_key: () => withKey("wrong"),
  right_key: async () => (await withKey(KEY)).text,
  embeddings: async () =>
    (await embedMany({ model: provider().embeddingModel(MODEL), values: ["hello", "you"] })).embeddings.length,
  unusual: async () => ({ whole: (await answer("unusual")).text, streamed: (await pieces("unusual")).text }),
  thoughts: async () => (await generateText({ model, prompt: "think" })).reasoningText,
  tool_loop: toolLoop,
});
